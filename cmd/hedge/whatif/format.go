package whatif

import (
	"errors"
	"regexp"
	"slices"
)

// Format is the format of a file. The empty Format is found by the first line.
type Format string

const (
	Lines      Format = "lines" // a latency on each line
	CSV        Format = "csv"
	Prometheus Format = "prometheus"
)

// String returns the format as Set reads it.
func (f Format) String() string { return string(f) }

// Set reads a format.
func (f *Format) Set(s string) error {
	*f = Format(s)
	if !slices.Contains([]Format{Lines, CSV, Prometheus}, *f) {
		return errors.New("must be lines, csv or prometheus")
	}
	return nil
}

// formatOf returns the format of a file with the given first line. A line is of Prometheus only if
// it is a complete comment or sample, because the name of a CSV column may contain spaces.
func (in *input) formatOf(first string) Format {
	switch {
	case isQuoted.MatchString(first):
		return Prometheus
	case isMetric.MatchString(first) && (in.Field == "" || isName.MatchString(in.Field)):
		return Prometheus
	case in.Field != "":
		return CSV
	}
	return Lines
}

const metricName = `[a-zA-Z_:][\w:]*`

var (
	isName   = regexp.MustCompile(`^` + metricName + `$`)
	isMetric = regexp.MustCompile(`^# (HELP|TYPE|UNIT) ` + metricName + `( |$)|^# EOF$|` +
		`^` + metricName + ` ?\{ *(\}|[a-zA-Z_]\w*=")|` +
		`^` + metricName + `[ \t]+[+-]?(\d[\d.eE+-]*|Inf|NaN)([ \t]+\d+)?$`)
	// isQuoted matches a line with a name in quotes, or as a label, which stands between the braces.
	isQuoted = regexp.MustCompile(`^# (HELP|TYPE|UNIT) "|^\{ *("(\\.|[^"\\])*" *[,}]|__name__=")`)
)
