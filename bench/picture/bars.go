package picture

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/grpchedge/hedge/bench/figure"
)

// Bars shows the p99 of each policy and, beside it, the extra load.
type Bars struct {
	Title string
	Value string // the quantity that the p99 describes
	Rows  []Bar
}

// Bar is the row of one policy.
type Bar struct {
	Label     string
	P99       float64 // in ms
	ExtraLoad float64
}

const barHeight = 0.32 * vg.Inch

func (b Bars) height() vg.Length { return 1.2*vg.Inch + barHeight*vg.Length(len(b.Rows)) }

func (b Bars) draw(c draw.Canvas) {
	middle := c.Min.X + 0.62*(c.Max.X-c.Min.X)
	b.half(b.Title, "p99 "+b.Value+" (ms, log scale)", true).Draw(draw.Crop(c, 0, middle-c.Max.X-vg.Points(6), 0, 0))
	b.half("", "extra load (% of calls)", false).Draw(draw.Crop(c, middle-c.Min.X+vg.Points(6), 0, 0, 0))
}

// half draws one of the two diagrams: the left one has the names of the policies.
func (b Bars) half(title, axis string, left bool) *plot.Plot {
	pl, _ := newPlot(title, axis, "")
	if title == "" {
		pl.Title.Text = " " // as high as the other half's
	}
	low, high := math.Inf(1), math.Inf(-1)
	at := func(r Bar) (float64, string) {
		if left {
			return math.Log10(r.P99), figure.MillisOf(r.P99)
		}
		return 100 * r.ExtraLoad, figure.Percent(r.ExtraLoad)
	}
	for _, r := range b.Rows {
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
	names := make([]plot.Tick, 0, len(b.Rows))
	for i, r := range b.Rows {
		y := float64(len(b.Rows) - 1 - i)
		x, text := at(r)
		line := &plotter.Line{XYs: plotter.XYs{{X: start, Y: y}, {X: max(x, start), Y: y}}}
		line.Color, line.Width = look.color, barHeight*0.55
		pl.Add(line)
		if labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: max(x, start), Y: y}},
			Labels: []string{text}}); err == nil {
			labels.TextStyle[0].Font.Variant = plot.DefaultFont.Variant
			labels.TextStyle[0].YAlign = draw.YCenter
			labels.TextStyle[0].Color = color.Gray{0x22}
			labels.Offset.X, labels.Offset.Y = vg.Points(4), vg.Points(1.5)
			pl.Add(labels)
		}
		name := r.Label
		if !left {
			name = ""
		}
		names = append(names, plot.Tick{Value: y, Label: name})
	}
	pl.Y.Tick.Marker = plot.ConstantTicks(names)
	pl.Y.Min, pl.Y.Max = -0.6, float64(len(b.Rows))-0.4
	pl.X.Min, pl.X.Max = start, high+0.28*(high-start) // room for the value of the longest
	if left {
		pl.X.Tick.Marker = latencyTicks{upTo: high + 0.2, sparse: true}
	}
	return pl
}
