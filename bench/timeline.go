package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/grpchedge/hedge/internal/testserver"
)

// second is what happened in one second of a run, by when calls began and when hedges reached the server.
type second struct {
	calls, hedges int
	p99           time.Duration
	delay         time.Duration // learned at its end; 0 if nothing was, or if the policy learns nothing
}

func (s second) extraLoad() float64 { return float64(s.hedges) / float64(max(s.calls, 1)) }

// seconds is the course of a run.
func (r *result) seconds() []second {
	if len(r.began) == 0 {
		return nil
	}
	course := make([]second, int(slices.Max(r.began)/time.Second)+1)
	latencies := make([][]time.Duration, len(course))
	for n, at := range r.began {
		s := int(at / time.Second)
		course[s].calls++
		latencies[s] = append(latencies[s], r.latencies[n])
	}
	for _, at := range r.hedges {
		if s := int(at / time.Second); s < len(course) {
			course[s].hedges++
		}
	}
	for _, learned := range r.samples {
		if s := int(learned.at/time.Second) - 1; s >= 0 && s < len(course) {
			course[s].delay = learned.delay
		}
	}
	for s := range course {
		if slices.Sort(latencies[s]); len(latencies[s]) > 0 {
			course[s].p99 = quantile(latencies[s], 0.99)
		}
	}
	return course
}

// trueQuantile is what a primary takes at some time of a run, of 20,000 draws.
func (w workload) trueQuantile(q float64, at, run time.Duration) time.Duration {
	law, err := testserver.ParseLaw(w.law)
	if err != nil {
		panic(err) // the table of workloads is wrong
	}
	rng := rand.New(rand.NewPCG(1, 2))
	draws := make([]time.Duration, 20_000)
	for i := range draws {
		draws[i] = law.Draw(rng)
	}
	slices.Sort(draws)
	factor, plus := 1.0, time.Duration(0)
	if w.over != nil {
		factor, plus = w.over(at, run)
	}
	return time.Duration(factor*float64(quantile(draws, q))) + plus
}

// courseSheet is the course of every policy, second by second; nil if calls did not arrive by the clock.
func (f *findings) courseSheet() *sheet {
	if f.workload.arrivals == nil {
		return nil
	}
	s := &sheet{labels: 1, columns: []column{{"policy", "policy"}, {"second", "second"}, {"calls", "calls"}, {"hedges", "hedges"},
		{"extra load", "extra_load"}, {"p99", "p99_ms"}, {"delay", "delay_ms"}}}
	for _, run := range f.runs {
		for _, r := range run.results {
			for i, sec := range r.seconds() {
				s.add(word(r.policy.name), number(int64(i)), number(int64(sec.calls)), number(int64(sec.hedges)), share(sec.extraLoad()), latency(sec.p99), latency(sec.delay))
			}
		}
	}
	return s
}

// course is a diagram over time.
type course struct {
	title, value string
	logarithmic  bool // values are latencies in ms
	series       []series
}

type series struct {
	label  string
	look   int       // an index of looks
	values []float64 // of each second; not a number where there is none
}

func (c course) height() vg.Length { return 3.6 * vg.Inch }

func (c course) draw(canvas draw.Canvas) {
	pl, legend := newPlot(c.title, "time (s)", c.value)
	for _, s := range c.series {
		look := looks[s.look]
		line := &plotter.Line{}
		line.Color, line.Width, line.Dashes = look.color, vg.Points(1.8), look.dashes
		marks := &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: look.color, Radius: vg.Points(3), Shape: look.marker}}
		for x, y := range s.values {
			if math.IsNaN(y) {
				continue
			}
			if c.logarithmic {
				y = latencyPosition(time.Duration(y * float64(time.Millisecond)))
			}
			point := plotter.XY{X: float64(x) + 0.5, Y: y}
			line.XYs = append(line.XYs, point)
			if x%10 == 5 {
				marks.XYs = append(marks.XYs, point)
			}
		}
		if len(line.XYs) == 0 {
			continue
		}
		pl.Add(line)
		if len(marks.XYs) > 0 {
			pl.Add(marks)
		}
		legend.Add(s.label, line, marks)
	}
	pl.X.Min = 0
	if c.logarithmic {
		pl.Y.Tick.Marker = latencyTicks{upTo: pl.Y.Max + 0.2}
	} else {
		pl.Y.Min = 0
	}
	fitBelowLegend(pl, len(c.series), c.height())
	if !c.logarithmic {
		pl.Y.Min = 0
	}
	drawWithLegend(pl, legend, canvas)
}

// courses are the diagrams over time of a run: the delay, the extra load and the p99.
func (f *findings) courses(run clockRun) []course {
	name := f.workload.name
	delay := course{title: name + ": the learned delay over time", value: "delay (ms, log scale)", logarithmic: true}
	load := course{title: name + ": extra load in each second", value: "hedges per 100 calls"}
	tail := course{title: name + ": p99 of the calls of each second", value: "p99 (ms, log scale)", logarithmic: true}
	delay.series = append(delay.series, f.truth(run))
	load.series = append(load.series, steady("10 for 100 calls, the budget of adaptive", 10, len(run.results[0].seconds())))
	looks := lookOf(run.results)
	for i, r := range run.results[:min(len(run.results), curvesDrawn)] {
		of := func(value func(second) float64) series {
			s := series{label: r.policy.name, look: looks[i]}
			for _, sec := range r.seconds() {
				s.values = append(s.values, value(sec))
			}
			return s
		}
		if r.policy.budget > 0 {
			delay.series = append(delay.series, of(func(s second) float64 { return msOrNone(s.delay) }))
		}
		if r.policy.name != none {
			load.series = append(load.series, of(func(s second) float64 { return 100 * s.extraLoad() }))
		}
		tail.series = append(tail.series, of(func(s second) float64 { return msOrNone(s.p99) }))
	}
	if f.workload.over == nil { // then what a primary takes is up to the queue
		return []course{load, tail}
	}
	return []course{delay, load, tail}
}

// truth is what the 90th percentile of primaries is in each second of a run.
func (f *findings) truth(run clockRun) series {
	s := series{label: "true p90 of a primary", look: 0}
	r := run.results[0]
	whole := slices.Max(r.began)
	known := map[[2]float64]float64{}
	for i := range r.seconds() {
		factor, plus := 1.0, time.Duration(0)
		at := time.Duration(i)*time.Second + time.Second/2
		if f.workload.over != nil {
			factor, plus = f.workload.over(at, whole)
		}
		key := [2]float64{factor, float64(plus)}
		if _, ok := known[key]; !ok {
			known[key] = msOrNone(f.workload.trueQuantile(0.90, at, whole))
		}
		s.values = append(s.values, known[key])
	}
	return s
}

// steady is a series that does not change, with the look of what is not hedged.
func steady(label string, value float64, n int) series {
	return series{label: label, look: 0, values: slices.Repeat([]float64{value}, n)}
}

func msOrNone(d time.Duration) float64 {
	if d == 0 {
		return math.NaN()
	}
	return d.Seconds() * 1e3
}

// lookOf gives each result a look: what is not hedged and what this library does by default the same ones in every
// picture, the others what is left, in their order.
func lookOf(results []*result) []int {
	indexes := make([]int, len(results))
	next := 2
	for i, r := range results {
		switch r.policy.name {
		case none:
			indexes[i] = 0
		case adaptive:
			indexes[i] = 1
		default:
			indexes[i] = 2 + (next-2)%(len(looks)-2)
			next++
		}
	}
	return indexes
}
