package debug

import (
	"fmt"
	"github.com/grpchedge/hedge/internal/registry"
	"math"
	"strings"
	"time"
)

// chart is a picture of a few curves, which the page draws as SVG. Its units are pixels of a picture of chartWidth by
// chartHeight.
type chart struct {
	Title          string // for people who cannot see it
	Curves         []curve
	XTicks, YTicks []tick
	Left, Right    float64
	Top, Bottom    float64
}

type curve struct {
	Class, Label string
	Breaks       []string // its parts between gaps, as the points of a polyline
}

type tick struct {
	At    float64
	Label string
}

const (
	chartWidth, chartHeight = 360.0, 190.0
	chartLeft, chartRight   = 48.0, 338.0
	chartTop, chartBottom   = 12.0, 162.0
)

func newChart(title string) *chart {
	return &chart{Title: title, Left: chartLeft, Right: chartRight, Top: chartTop, Bottom: chartBottom}
}

// axis maps values to pixels, evenly or by their logarithms.
type axis struct {
	low, high float64
	from, to  float64
	log       bool
}

func (a axis) at(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log(max(v, a.low)), math.Log(low), math.Log(high)
	}
	if high <= low {
		return a.from
	}
	return a.from + (a.to-a.from)*min(max((v-low)/(high-low), 0), 1)
}

// line adds a curve through points. Where one of them is not known, it has a gap.
func (c *chart) line(class, label string, n int, point func(int) (x, y float64, known bool)) {
	var parts []string
	var b strings.Builder
	end := func() {
		if b.Len() > 0 {
			parts = append(parts, b.String())
			b.Reset()
		}
	}
	for i := range n {
		x, y, known := point(i)
		if !known {
			end()
			continue
		}
		fmt.Fprintf(&b, "%.1f,%.1f ", x, y)
	}
	end()
	if len(parts) > 0 {
		c.Curves = append(c.Curves, curve{Class: class, Label: label, Breaks: parts})
	}
}

// latencyChart is the share of calls that take longer, by latency, both axes by logarithms.
func latencyChart(points []registry.CurvePoint) *chart {
	if len(points) < 2 {
		return nil
	}
	c := newChart("share of calls that take longer, with and without hedging")
	low, high := math.Inf(1), 0.0
	for _, p := range points {
		for _, d := range []time.Duration{p.Unhedged, p.Hedged} {
			if d > 0 {
				low, high = min(low, float64(d)), max(high, float64(d))
			}
		}
	}
	if high == 0 {
		return nil
	}
	rarest := 1 - points[len(points)-1].Quantile
	x := axis{low: low / 1.2, high: high * 1.2, from: chartLeft, to: chartRight, log: true}
	y := axis{low: rarest, high: 1, from: chartBottom, to: chartTop, log: true}
	c.XTicks = timeTicks(x)
	for _, share := range []float64{1, 0.1, 0.01, 0.001, 0.0001} {
		if share >= rarest*0.99 {
			c.YTicks = append(c.YTicks, tick{y.at(share), fmt.Sprintf("%g%%", 100*share)})
		}
	}
	draw := func(class, label string, of func(registry.CurvePoint) time.Duration) {
		c.line(class, label, len(points), func(i int) (float64, float64, bool) {
			d := of(points[i])
			return x.at(float64(d)), y.at(1 - points[i].Quantile), d > 0
		})
	}
	draw("without", "without hedging (estimate)", func(p registry.CurvePoint) time.Duration { return p.Unhedged })
	draw("with", "as it was", func(p registry.CurvePoint) time.Duration { return p.Hedged })
	return c
}

const shownFor = 10 * time.Minute

// timeline returns the axis of the last ten minutes, and gives the chart its ticks.
func (c *chart) timeline() axis {
	x := axis{low: -shownFor.Seconds(), high: 0, from: chartLeft, to: chartRight}
	for _, minutes := range []float64{10, 5, 0} {
		label := fmt.Sprintf("−%.0f min", minutes)
		if minutes == 0 {
			label = "now"
		}
		c.XTicks = append(c.XTicks, tick{x.at(-60 * minutes), label})
	}
	return x
}

// tailChart is the p99 of the last ten minutes.
func tailChart(now time.Time, samples []sample) *chart {
	c := newChart("p99 of the last ten minutes, with and without hedging")
	low, high := math.Inf(1), 0.0
	for _, s := range samples {
		for _, d := range []time.Duration{s.Tail, s.Unhedged} {
			if d > 0 {
				low, high = min(low, float64(d)), max(high, float64(d))
			}
		}
	}
	if high == 0 {
		return nil
	}
	x, y := c.timeline(), axis{low: low / 1.5, high: high * 1.5, from: chartBottom, to: chartTop, log: true}
	c.YTicks = timeTicks(y)
	draw := func(class, label string, of func(sample) time.Duration) {
		c.line(class, label, len(samples), func(i int) (float64, float64, bool) {
			d := of(samples[i])
			return x.at(samples[i].At.Sub(now).Seconds()), y.at(float64(d)), d > 0
		})
	}
	draw("without", "without hedging (estimate)", func(s sample) time.Duration { return s.Unhedged })
	draw("with", "as it was", func(s sample) time.Duration { return s.Tail })
	return c
}

// loadChart is the extra load of the last ten minutes, and the budget.
func loadChart(now time.Time, samples []sample, budgetPercent float64) *chart {
	c := newChart("hedges per call in the last ten minutes, and the budget")
	most := budgetPercent / 100
	known := false
	for _, s := range samples {
		most, known = max(most, s.Load), known || s.Known
	}
	if !known || most == 0 {
		return nil
	}
	x, y := c.timeline(), axis{high: most * 1.2, from: chartBottom, to: chartTop}
	for _, share := range evenTicks(y.high) {
		c.YTicks = append(c.YTicks, tick{y.at(share), fmt.Sprintf("%.3g%%", 100*share)})
	}
	c.line("budget", "budget", 2, func(i int) (float64, float64, bool) {
		return []float64{chartLeft, chartRight}[i], y.at(budgetPercent / 100), true
	})
	c.line("with", "hedges per call", len(samples), func(i int) (float64, float64, bool) {
		return x.at(samples[i].At.Sub(now).Seconds()), y.at(samples[i].Load), samples[i].Known
	})
	return c
}

// evenTicks returns two to five round values up to high.
func evenTicks(high float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10(high)))
	for _, smaller := range []float64{1, 2, 5, 10} {
		if n := high / (step / smaller); n >= 2 {
			step /= smaller
			break
		}
	}
	var ticks []float64
	for v := 0.0; v <= high; v += step {
		ticks = append(ticks, v)
	}
	return ticks
}

// timeTicks returns round times on a logarithmic axis, at most about six.
func timeTicks(a axis) []tick {
	var ticks []tick
	for _, digits := range [][]float64{{1, 2, 5}, {1, 3}, {1}} {
		ticks = nil
		for unit := 1e3; unit < 1e12; unit *= 10 {
			for _, d := range digits {
				if v := d * unit; v >= a.low && v <= a.high {
					ticks = append(ticks, tick{a.at(v), short(time.Duration(v))})
				}
			}
		}
		if len(ticks) <= 6 {
			break
		}
	}
	return ticks
}
