package main

import (
	"math"
	"time"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

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
