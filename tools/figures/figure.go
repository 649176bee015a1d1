package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A number, with its unit if there is one right behind it.
const number = `(-?[\d.,]*\d(?: ?(?:ns|µs|ms|s|min|bytes|KB)\b| ?%)?)`

// units are what figures are in, as multiples of the first of their kind.
var units = map[string]struct {
	kind  string
	times float64
}{"ns": {"time", 1}, "µs": {"time", 1e3}, "ms": {"time", 1e6}, "s": {"time", 1e9}, "min": {"time",
	60e9}, "bytes": {"size", 1}, "KB": {"size", 1024}}

// figure is a number with its unit, as it was written.
type figure struct {
	value float64
	unit  string
	half  float64 // of its last digit
}

func readFigure(text string) (figure, error) {
	digits := strings.TrimRightFunc(text, func(r rune) bool { return !unicode.IsDigit(r) })
	f := figure{unit: strings.TrimSpace(text[len(digits):])}
	digits = strings.ReplaceAll(digits, ",", "")
	var err error
	f.value, err = strconv.ParseFloat(digits, 64)
	_, decimals, _ := strings.Cut(digits, ".")
	f.half = math.Pow(10, -float64(len(decimals))) / 2
	return f, err
}

// in converts the figure to a unit. A number alone has that already.
func (f figure) in(unit string) (float64, error) {
	from, to := units[f.unit], units[unit]
	switch {
	case f.unit == unit || f.unit == "":
		return f.value, nil
	case from.kind == "" || from.kind != to.kind:
		return 0, fmt.Errorf("%q in place of %q", f.unit, unit)
	}
	return f.value * from.times / to.times, nil
}

// fresh reports whether the output's value is the page's: rounded, or within a share of it.
func (f figure) fresh(now, within float64) bool {
	return math.Abs(now-f.value) <= 1.02*f.half+within*math.Abs(f.value) // a fiftieth for figures that were rounded twice
}

// reduce makes one line of several with an equal number of columns.
func reduce(how string, values []float64, columns int) []float64 {
	var reduced []float64
	for column := range columns {
		var all []float64
		sum := 0.0
		for i := column; i < len(values); i += columns {
			all = append(all, values[i])
			sum += values[i]
		}
		reduced = append(reduced, map[string]float64{"mean": sum / float64(len(all)), "least": slices.Min(all),
			"most": slices.Max(all), "sum": sum}[how])
	}
	return reduced
}
