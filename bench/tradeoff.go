package main

import (
	"math"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// tradeOff is a diagram of p99 against extra load: what lies below and to the left of all else is worth having.
type tradeOff struct {
	title  string
	curves []tradeOffCurve
}

// tradeOffCurve is policies that differ in one number, by extra load.
type tradeOffCurve struct {
	label  string
	look   int // an index of looks
	points []tradeOffPoint
}

// tradeOffPoint is what one policy costs, as a share of the calls, and what it reaches.
type tradeOffPoint struct {
	extraLoad float64
	p99       time.Duration
}

func (t tradeOff) height() vg.Length { return 4.2 * vg.Inch }

func (t tradeOff) draw(c draw.Canvas) {
	pl, legend := newPlot(t.title, "extra load (% of calls, log scale)", "p99 (ms, log scale)")
	for _, curve := range t.curves {
		look := looks[curve.look]
		var at plotter.XYs
		for _, p := range curve.points {
			// What costs less than a thousandth is drawn there.
			at = append(at, plotter.XY{X: math.Log10(max(100*p.extraLoad, 0.1)), Y: latencyPosition(p.p99)})
		}
		line := &plotter.Line{XYs: at}
		line.Color, line.Width, line.Dashes = look.color, vg.Points(2), look.dashes
		marks := &plotter.Scatter{XYs: at, GlyphStyle: draw.GlyphStyle{Color: look.color, Radius: vg.Points(4), Shape: look.marker}}
		pl.Add(line, marks)
		legend.Add(curve.label, line, marks)
	}
	top := pl.Y.Max
	fitBelowLegend(pl, len(t.curves), t.height())
	everywhere := latencyTicks{upTo: math.Inf(1)}
	pl.X.Tick.Marker, pl.Y.Tick.Marker = everywhere, latencyTicks{upTo: top}
	drawWithLegend(pl, legend, c)
}
