package main

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bars shows the p99 of each policy, and beside it what it costs in extra load.
type bars struct {
	title string
	value string // what the p99 is of
	rows  []bar
}

type bar struct {
	label     string
	p99       float64 // in ms
	extraLoad float64
}

const barHeight = 0.32 * vg.Inch

func (b bars) height() vg.Length { return 1.2*vg.Inch + barHeight*vg.Length(len(b.rows)) }

func (b bars) draw(c draw.Canvas) {
	middle := c.Min.X + 0.62*(c.Max.X-c.Min.X)
	b.half(b.title, "p99 "+b.value+" (ms, log scale)", true).Draw(draw.Crop(c, 0, middle-c.Max.X-vg.Points(6), 0, 0))
	b.half("", "extra load (% of calls)", false).Draw(draw.Crop(c, middle-c.Min.X+vg.Points(6), 0, 0, 0))
}

// half is one of the two diagrams, the one with the names of the policies or the other.
func (b bars) half(title, axis string, left bool) *plot.Plot {
	pl, _ := newPlot(title, axis, "")
	if title == "" {
		pl.Title.Text = " " // as high as the other half's
	}
	low, high := math.Inf(1), math.Inf(-1)
	at := func(r bar) (float64, string) {
		if left {
			return math.Log10(r.p99), millisOf(r.p99)
		}
		return 100 * r.extraLoad, percent(r.extraLoad)
	}
	for _, r := range b.rows {
		x, _ := at(r)
		low, high = min(low, x), max(high, x)
	}
	start := low - max(0.25*(high-low), 0.1)
	if !left {
		start, high = 0, max(high, 10)
	}
	look := looks[1]
	if !left {
		look = looks[4]
	}
	names := make([]plot.Tick, 0, len(b.rows))
	for i, r := range b.rows {
		y := float64(len(b.rows) - 1 - i)
		x, text := at(r)
		line := &plotter.Line{XYs: plotter.XYs{{X: start, Y: y}, {X: max(x, start), Y: y}}}
		line.Color, line.Width = look.color, barHeight*0.55
		pl.Add(line)
		if labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: max(x, start), Y: y}}, Labels: []string{text}}); err == nil {
			labels.TextStyle[0].Font.Variant = plot.DefaultFont.Variant
			labels.TextStyle[0].YAlign = draw.YCenter
			labels.TextStyle[0].Color = color.Gray{0x22}
			labels.Offset.X, labels.Offset.Y = vg.Points(4), vg.Points(1.5)
			pl.Add(labels)
		}
		name := r.label
		if !left {
			name = ""
		}
		names = append(names, plot.Tick{Value: y, Label: name})
	}
	pl.Y.Tick.Marker = plot.ConstantTicks(names)
	pl.Y.Min, pl.Y.Max = -0.6, float64(len(b.rows))-0.4
	pl.X.Min, pl.X.Max = start, high+0.28*(high-start) // room for the value of the longest
	if left {
		pl.X.Tick.Marker = latencyTicks{upTo: high + 0.2, sparse: true}
	}
	return pl
}
