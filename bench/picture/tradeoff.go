package picture

import (
	"math"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// TradeOff is a diagram of p99 against extra load. Lower and further left is better.
type TradeOff struct {
	Title  string
	Curves []TradeOffCurve
}

// TradeOffCurve is policies that differ in one number, ordered by extra load.
type TradeOffCurve struct {
	Label  string
	Look   int // an index of looks
	Points []TradeOffPoint
}

// TradeOffPoint is one policy: its extra load as a share of the calls, and its p99.
type TradeOffPoint struct {
	ExtraLoad float64
	P99       time.Duration
}

func (t TradeOff) height() vg.Length { return 4.2 * vg.Inch }

func (t TradeOff) draw(c draw.Canvas) {
	pl, legend := newPlot(t.Title, "extra load (% of calls, log scale)", "p99 (ms, log scale)")
	for _, curve := range t.Curves {
		look := looks[curve.Look]
		var at plotter.XYs
		for _, p := range curve.Points {
			// A load below 0.1% is drawn at 0.1%.
			at = append(at, plotter.XY{X: math.Log10(max(100*p.ExtraLoad, 0.1)), Y: latencyPosition(p.P99)})
		}
		line := &plotter.Line{XYs: at}
		line.Color, line.Width, line.Dashes = look.color, vg.Points(2), look.dashes
		marks := &plotter.Scatter{XYs: at, GlyphStyle: draw.GlyphStyle{Color: look.color, Radius: vg.Points(4),
			Shape: look.marker}}
		pl.Add(line, marks)
		legend.Add(curve.Label, line, marks)
	}
	top := pl.Y.Max
	fitBelowLegend(pl, len(t.Curves), t.height())
	everywhere := latencyTicks{upTo: math.Inf(1)}
	pl.X.Tick.Marker, pl.Y.Tick.Marker = everywhere, latencyTicks{upTo: top}
	drawWithLegend(pl, legend, c)
}
