package whatif

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Unit is the unit of latencies that are numbers alone; 0: such numbers are an error.
type Unit time.Duration

var units = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond,
	"s": time.Second, "m": time.Minute,
}

// namedUnits are the units as the names of metrics have them.
var namedUnits = map[string]Unit{
	"nanoseconds": Unit(time.Nanosecond), "nanos": Unit(time.Nanosecond), "ns": Unit(time.Nanosecond),
	"microseconds": Unit(time.Microsecond), "micros": Unit(time.Microsecond), "us": Unit(time.Microsecond),
	"milliseconds": Unit(time.Millisecond), "millis": Unit(time.Millisecond), "ms": Unit(time.Millisecond),
	"seconds": Unit(time.Second), "s": Unit(time.Second),
	"minutes": Unit(time.Minute),
}

// String is a unit as Set reads it.
func (u Unit) String() string {
	if u == 0 {
		return ""
	}
	return strings.TrimPrefix(time.Duration(u).String(), "1")
}

// Set reads a unit.
func (u *Unit) Set(s string) error {
	d, ok := units[s]
	if !ok {
		return errors.New("must be ns, us, ms, s or m")
	}
	*u = Unit(d)
	return nil
}

// The expected text of a latency.
const (
	aLatency   = "a latency with a unit, such as 12.5ms"
	orUnit     = aLatency + "; for numbers alone, give their unit with -unit"
	notBelow0  = "a latency of 0 or more"
	notForever = "a latency of less than 292 years"
)

// latency reads the latency of one call. An error describes the expected text.
func (u Unit) latency(s string) (d time.Duration, expected string) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return withUnit(s)
	}
	if u == 0 {
		return 0, orUnit
	}
	return inUnits(x, u)
}

// withUnit reads "12.5ms" or "12.5 ms".
func withUnit(s string) (d time.Duration, expected string) {
	d, err := time.ParseDuration(s)
	if err != nil {
		if d, err = time.ParseDuration(strings.Replace(s, " ", "", 1)); err != nil {
			return 0, aLatency
		}
	}
	if d < 0 {
		return 0, notBelow0
	}
	return d, ""
}

func inUnits(x float64, u Unit) (d time.Duration, expected string) {
	switch ns := x * float64(u); {
	case math.IsNaN(x):
		return 0, aLatency
	case x < 0:
		return 0, notBelow0
	case ns >= math.MaxInt64:
		return 0, notForever
	default:
		return time.Duration(math.Round(ns)), ""
	}
}
