package debug

import (
	"fmt"
	"math"
	"slices"
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

// timeAxis returns a logarithmic axis for all latencies above 0, with room at both ends; nil if
// there are none.
func timeAxis(latencies []time.Duration) *axis {
	const room = 1.5
	known := slices.DeleteFunc(slices.Clone(latencies), func(d time.Duration) bool { return d <= 0 })
	if len(known) == 0 {
		return nil
	}
	return &axis{
		low: float64(slices.Min(known)) / room, high: float64(slices.Max(known)) * room,
		from: chartBottom, to: chartTop, log: true,
	}
}

var timeline = axis{low: -600, high: 0, from: chartLeft, to: chartRight}

func (r row) when(i int) float64 { return timeline.at(r.History[i].At.Sub(r.at).Seconds()) }

func newTimeChart(title string) *chart {
	return &chart{Title: title, XTicks: []tick{
		{timeline.at(-600), "−10 min"}, {timeline.at(-300), "−5 min"}, {timeline.at(0), "now"},
	}}
}

// TailChart is the p99 of the last ten minutes.
func (r row) TailChart() *chart {
	var latencies []time.Duration
	for _, s := range r.History {
		latencies = append(latencies, s.Unhedged, s.Tail)
	}
	y := timeAxis(latencies)
	if y == nil {
		return nil
	}
	c := newTimeChart("p99 of the last ten minutes, with and without hedging")
	c.YTicks = timeTicks(y)
	line := func(class, label string, latency func(registry.Sample) time.Duration) {
		c.line(class, label, len(r.History), func(i int) (float64, float64, bool) {
			d := latency(r.History[i])
			return r.when(i), y.at(float64(d)), d > 0
		})
	}
	line("without", "without hedging", func(s registry.Sample) time.Duration { return s.Unhedged })
	line("with", "measured", func(s registry.Sample) time.Duration { return s.Tail })
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
	c.line("with", "hedges per call", len(r.History), func(i int) (float64, float64, bool) {
		return r.when(i), y.at(r.History[i].Load), r.History[i].Known
	})
	return c
}

// timeTicks returns round times on a logarithmic axis, at most about six.
func timeTicks(a *axis) []tick {
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
