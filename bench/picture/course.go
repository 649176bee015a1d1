package picture

import (
	"math"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Course is a diagram over time.
type Course struct {
	Title, Value string
	Logarithmic  bool // values are latencies in ms
	Series       []Series
}

// Series is one line of a Course.
type Series struct {
	Label  string
	Look   int       // an index of looks
	Values []float64 // of each second; not a number where there is none
}

func (c Course) height() vg.Length { return 3.6 * vg.Inch }

func (c Course) draw(canvas draw.Canvas) {
	pl, legend := newPlot(c.Title, "time (s)", c.Value)
	for _, s := range c.Series {
		look := looks[s.Look]
		line := &plotter.Line{}
		line.Color, line.Width, line.Dashes = look.color, vg.Points(1.8), look.dashes
		marks := &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: look.color, Radius: vg.Points(3), Shape: look.marker}}
		for x, y := range s.Values {
			if math.IsNaN(y) {
				continue
			}
			if c.Logarithmic {
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
		legend.Add(s.Label, line, marks)
	}
	pl.X.Min = 0
	if c.Logarithmic {
		pl.Y.Tick.Marker = latencyTicks{upTo: pl.Y.Max + 0.2}
	} else {
		pl.Y.Min = 0
	}
	fitBelowLegend(pl, len(c.Series), c.height())
	if !c.Logarithmic {
		pl.Y.Min = 0
	}
	drawWithLegend(pl, legend, canvas)
}
