package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A number, with its unit if there is one right behind it.
const number = `(-?[\d.,]*\d(?: ?(?:ns|µs|ms|s|h|min|KB|kB)\b| ?%)?)`

// figure is a number with its unit, as it was written.
type figure struct {
	value float64
	unit  string
	half  float64 // of its last digit
}

func readFigure(text string) (figure, error) {
	digits := strings.TrimRight(text, " nµmshinkKB%")
	f := figure{unit: strings.TrimSpace(text[len(digits):])}
	digits = strings.ReplaceAll(digits, ",", "")
	var err error
	f.value, err = strconv.ParseFloat(digits, 64)
	_, decimals, _ := strings.Cut(digits, ".")
	f.half = math.Pow(10, -float64(len(decimals))) / 2
	return f, err
}

// in converts the figure to a unit. A number alone has the unit already.
func (f figure) in(unit string) (float64, error) {
	if f.unit == unit || f.unit == "" {
		return f.value, nil
	}
	from, err := time.ParseDuration("1" + f.unit)
	to, err2 := time.ParseDuration("1" + unit)
	if err != nil || err2 != nil {
		return 0, fmt.Errorf("%q in place of %q", f.unit, unit)
	}
	return f.value * float64(from) / float64(to), nil
}

// fresh reports whether the output's value is the page's: rounded, or within a share of it.
func (f figure) fresh(now, within float64) bool {
	return math.Abs(now-f.value) <= 1.02*f.half+within*math.Abs(f.value) // a fiftieth for those that were rounded twice
}

// reduce makes one value of those that several lines have.
func reduce(how string, values []float64) (float64, error) {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	switch how {
	case "mean":
		return sum / float64(len(values)), nil
	case "least":
		return slices.Min(values), nil
	case "most":
		return slices.Max(values), nil
	case "sum":
		return sum, nil
	}
	if len(values) > 1 {
		return 0, fmt.Errorf("%d lines of the output have it", len(values))
	}
	return values[0], nil
}
