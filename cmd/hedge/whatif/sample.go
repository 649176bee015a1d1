package whatif

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// sample is a line of the text format of Prometheus.
type sample struct {
	name   string
	labels map[string]string
	series string // the labels but le, in their order
	value  float64
}

// aSample describes a valid line that is no comment.
const aSample = `a line such as rpc_seconds_bucket{le="0.1"} 42`

// parseSample reads a line that is no comment. An error describes the expected text.
func parseSample(line string) (s sample, expected string) {
	end := strings.IndexAny(line, "{ \t")
	if end < 0 {
		return s, aSample
	}
	s.name, line = line[:end], line[end:]
	s.labels = map[string]string{}
	if line[0] == '{' {
		var ok bool
		if line, ok = s.readLabels(line[1:]); !ok {
			return s, aSample
		}
	}
	if s.name = cmp.Or(s.name, s.labels["__name__"]); s.name == "" {
		return s, aSample
	}
	fields := strings.Fields(line) // the value, and ignored fields: a time, an exemplar
	if len(fields) == 0 {
		return s, aSample
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return s, aSample
	}
	s.value = value
	return s, ""
}

// readLabels reads the labels between braces, and returns the rest of the line. Their names may be in
// quotes, and so may the name of the metric, which then comes first and has no value.
func (s *sample) readLabels(text string) (rest string, ok bool) {
	var others strings.Builder
	for {
		text = strings.TrimLeft(text, " ,")
		if rest, ok := strings.CutPrefix(text, "}"); ok {
			s.series = others.String()
			return rest, true
		}
		name, after, ok := strings.Cut(text, "=")
		if strings.HasPrefix(text, `"`) {
			quoted := quotedPrefix(text)
			after, ok = strings.CutPrefix(strings.TrimLeft(text[len(quoted):], " "), "=")
			var err error
			if name, err = strconv.Unquote(quoted); err != nil {
				return "", false
			}
			if !ok && s.name == "" {
				s.name, text = name, after
				continue
			}
		}
		if after = strings.TrimLeft(after, " "); !ok || !strings.HasPrefix(after, `"`) {
			return "", false
		}
		quoted := quotedPrefix(after)
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return "", false
		}
		name = strings.TrimSpace(name)
		s.labels[name] = value
		if name != "le" {
			others.WriteString(name + "=" + quoted + ",")
		}
		text = after[len(quoted):]
	}
}

// quotedPrefix returns the text up to the quote that ends the one at its beginning, or all of it.
func quotedPrefix(text string) string {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return text[:i+1]
		}
	}
	return text
}

// edge reads the upper edge of a bucket.
func (s *sample) edge() (float64, bool) {
	le, ok := s.labels["le"]
	if !ok {
		return 0, false
	}
	x, err := strconv.ParseFloat(le, 64)
	return x, err == nil && !math.IsNaN(x) && x >= 0
}
