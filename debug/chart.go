package debug

import (
	"fmt"
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/registry"
)

// chart is a picture of a few curves over the last ten minutes, drawn as SVG: page.html has its
// edges and its axis of time. Its unit is a percent of the width or height, from the top left.
type chart struct {
	Title  string // for people who cannot see it
	Curves []curve
	YTicks []tick
}

type curve struct {
	Class, Label string
	Parts        []string // between gaps, each as the points of a polyline
}

type tick struct {
	At    float64
	Label string
}

func fromTop(share float64) float64 { return 100 * (1 - min(max(share, 0), 1)) }

// gapAfter is the time between two samples from which on nothing was measured in between: the rows
// have one every ten seconds while calls end.
const gapAfter = 30 * time.Second

// add adds a curve through the samples of a row, with gaps where the height is unknown.
func (c *chart) add(r row, class, label string, height func(registry.Sample) (share float64, known bool)) {
	var parts []string
	var last time.Time // of a known height; zero in a gap
	for _, s := range r.History {
		share, known := height(s)
		if !known {
			last = time.Time{}
			continue
		}
		point := fmt.Sprintf("%.1f,%.1f ", 100-10*min(r.at.Sub(s.At).Minutes(), 10), fromTop(share))
		if s.At.Sub(last) > gapAfter {
			parts = append(parts, point) // twice, or a lone point would be invisible
		}
		parts[len(parts)-1] += point
		last = s.At
	}
	if len(parts) > 0 {
		c.Curves = append(c.Curves, curve{class, label, parts})
	}
}

// TailChart is the p99 of the last ten minutes, on a logarithmic scale.
func (r row) TailChart() *chart {
	const room = 1.5 // at both ends
	low, high := math.Inf(1), 0.0
	for _, s := range r.History {
		for _, d := range []time.Duration{s.Unhedged, s.Tail} {
			if d > 0 {
				low, high = min(low, float64(d)/room), max(high, float64(d)*room)
			}
		}
	}
	if high == 0 {
		return nil
	}
	height := func(d time.Duration) (share float64, known bool) {
		return math.Log(float64(d)/low) / math.Log(high/low), d > 0
	}
	c := &chart{Title: "p99 of the last ten minutes, with and without hedging"}
	for _, d := range roundTimes(low, high) {
		share, _ := height(d)
		c.YTicks = append(c.YTicks, tick{fromTop(share), short(d)})
	}
	c.add(r, "without", "without hedging", func(s registry.Sample) (float64, bool) { return height(s.Unhedged) })
	c.add(r, "with", "measured", func(s registry.Sample) (float64, bool) { return height(s.Tail) })
	return c
}

// LoadChart is the extra load of the last ten minutes, and the budget. It is nil if the load is
// unknown, or if load and budget are 0.
func (r row) LoadChart() *chart {
	budget := r.budgetPercent / 100
	most, known := budget, false
	for _, s := range r.History {
		if s.Known {
			most, known = max(most, s.Load), true
		}
	}
	if !known || most == 0 {
		return nil
	}
	c, high := &chart{Title: "extra load of the last ten minutes, and the budget"}, most*1.2
	step := math.Pow(10, math.Floor(math.Log10(high)))
	if high < 2*step {
		step /= 2
	}
	for at := 0.0; at <= high && at <= 1; at += step {
		c.YTicks = append(c.YTicks, tick{fromTop(at / high), fmt.Sprintf("%.3g%%", 100*at)})
	}
	if budget > 0 {
		line := fmt.Sprintf("0,%.1f 100,%.1[1]f", fromTop(budget/high))
		c.Curves = []curve{{"budget", "budget", []string{line}}}
	}
	c.add(r, "with", "extra load", func(s registry.Sample) (float64, bool) { return s.Load / high, s.Known })
	return c
}

// roundTimes returns round times from low to high, in nanoseconds, at most about six.
func roundTimes(low, high float64) (times []time.Duration) {
	for _, digits := range [][]float64{{1, 2, 5}, {1, 3}, {1}} {
		times = nil
		for unit := 1e3; unit < 1e12; unit *= 10 {
			for _, d := range digits {
				if v := d * unit; v >= low && v <= high {
					times = append(times, time.Duration(v))
				}
			}
		}
		if len(times) <= 6 {
			break
		}
	}
	return times
}
