package debug

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/registry"
)

// chart is a picture of a few curves, drawn as SVG. Its unit is a pixel of the picture.
type chart struct {
	Title          string // for people who cannot see it
	Curves         []curve
	XTicks, YTicks []tick
}

type curve struct {
	Class, Label string
	Parts        []string // between gaps, each as the points of a polyline
}

type tick struct {
	At    float64
	Label string
}

// The edges of a chart, as page.html has them.
const (
	chartLeft, chartRight = 48.0, 338.0
	chartTop, chartBottom = 12.0, 162.0
)

// axis maps values to pixels, on a linear or logarithmic scale.
type axis struct {
	low, high float64
	from, to  float64
	log       bool
}

func (a axis) at(v float64) float64 {
	share := (v - a.low) / (a.high - a.low)
	if a.log {
		share = math.Log(v/a.low) / math.Log(a.high/a.low)
	}
	return a.from + (a.to-a.from)*min(max(share, 0), 1)
}

const gap = '|' // between the parts of a curve

// line adds a curve through points, with gaps at unknown points.
func (c *chart) line(class, label string, n int, point func(int) (x, y float64, known bool)) {
	var points strings.Builder
	for i := range n {
		if x, y, known := point(i); known {
			fmt.Fprintf(&points, "%.1f,%.1f ", x, y)
		} else {
			points.WriteByte(gap)
		}
	}
	if parts := strings.FieldsFunc(points.String(), func(r rune) bool { return r == gap }); len(parts) > 0 {
		c.Curves = append(c.Curves, curve{Class: class, Label: label, Parts: parts})
	}
}

var timeline = axis{low: -600, high: 0, from: chartLeft, to: chartRight}

func newTimeChart(title string) *chart {
	return &chart{Title: title, XTicks: []tick{
		{timeline.at(-600), "−10 min"}, {timeline.at(-300), "−5 min"}, {timeline.at(0), "now"},
	}}
}

// history adds a curve through the value of each sample.
func (c *chart) history(r row, class, label string, y axis, value func(registry.Sample) (v float64, known bool)) {
	c.line(class, label, len(r.History), func(i int) (float64, float64, bool) {
		v, known := value(r.History[i])
		return timeline.at(r.History[i].At.Sub(r.at).Seconds()), y.at(v), known
	})
}

// TailChart is the p99 of the last ten minutes.
func (r row) TailChart() *chart {
	const room = 1.5 // at both ends
	y := axis{low: math.Inf(1), from: chartBottom, to: chartTop, log: true}
	for _, s := range r.History {
		for _, d := range []time.Duration{s.Unhedged, s.Tail} {
			if d > 0 {
				y.low, y.high = min(y.low, float64(d)/room), max(y.high, float64(d)*room)
			}
		}
	}
	if y.high == 0 {
		return nil
	}
	c := newTimeChart("p99 of the last ten minutes, with and without hedging")
	c.YTicks = timeTicks(y)
	known := func(d time.Duration) (float64, bool) { return float64(d), d > 0 }
	c.history(r, "without", "without hedging", y, func(s registry.Sample) (float64, bool) { return known(s.Unhedged) })
	c.history(r, "with", "measured", y, func(s registry.Sample) (float64, bool) { return known(s.Tail) })
	return c
}

// LoadChart is the extra load of the last ten minutes, and the budget.
func (r row) LoadChart() *chart {
	budget, known := r.budgetPercent/100, false
	most := budget
	for _, s := range r.History {
		most, known = max(most, s.Load), known || s.Known
	}
	if !known || most == 0 {
		return nil
	}
	c := newTimeChart("hedges per call in the last ten minutes, and the budget")
	y := axis{high: most * 1.2, from: chartBottom, to: chartTop}
	step := math.Pow(10, math.Floor(math.Log10(y.high)))
	if y.high < 2*step {
		step /= 2
	}
	for share := 0.0; share <= y.high; share += step {
		c.YTicks = append(c.YTicks, tick{y.at(share), fmt.Sprintf("%.3g%%", 100*share)})
	}
	c.line("budget", "budget", 2, func(i int) (float64, float64, bool) {
		return []float64{chartLeft, chartRight}[i], y.at(budget), true
	})
	c.history(r, "with", "hedges per call", y, func(s registry.Sample) (float64, bool) { return s.Load, s.Known })
	return c
}

// timeTicks returns round times on a logarithmic axis, at most about six.
func timeTicks(a axis) (ticks []tick) {
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
