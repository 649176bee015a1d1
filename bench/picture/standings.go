package picture

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Standings shows, for each of several rows, a ratio that each rival reached and, beside it, its
// extra load.
type Standings struct {
	Title, Value, Load string
	Rows               []string
	Rivals             []Rival
}

// Rival is a kind of policy.
type Rival struct {
	Label string
	Look  int // an index of looks
	Marks []Mark
}

// Mark is a rival's result in one row.
type Mark struct {
	Row              int
	Ratio, ExtraLoad float64
}

const standingHeight = 0.26 * vg.Inch

func (s Standings) height() vg.Length {
	return 1.2*vg.Inch + standingHeight*vg.Length(len(s.Rows)+len(s.Rivals))
}

func (s Standings) draw(c draw.Canvas) {
	middle := c.Min.X + 0.68*(c.Max.X-c.Min.X)
	pl, legend := s.half(s.Title, s.Value, true)
	drawWithLegend(pl, legend, draw.Crop(c, 0, middle-c.Max.X-vg.Points(6), 0, 0))
	pl, _ = s.half(" ", s.Load, false)
	pl.Draw(draw.Crop(c, middle-c.Min.X+vg.Points(6), 0, 0, 0))
}

// half draws one of the two diagrams: the left one has the names of the rows.
func (s Standings) half(title, axis string, left bool) (*plot.Plot, *plot.Legend) {
	pl, legend := newPlot(title, axis, "")
	low, high := 0.0, 0.0
	for _, rival := range s.Rivals {
		look := looks[rival.Look]
		var at plotter.XYs
		for _, m := range rival.Marks {
			x := 100 * m.ExtraLoad
			if left {
				x = math.Log10(max(m.Ratio, 1e-4))
			}
			low, high = min(low, x), max(high, x)
			at = append(at, plotter.XY{X: x, Y: float64(len(s.Rows) - 1 - m.Row)})
		}
		marks := &plotter.Scatter{XYs: at, GlyphStyle: draw.GlyphStyle{Color: look.color, Radius: vg.Points(4),
			Shape: look.marker}}
		pl.Add(marks)
		legend.Add(rival.Label, marks)
	}
	names := make([]plot.Tick, 0, len(s.Rows))
	for i, name := range s.Rows {
		if !left {
			name = ""
		}
		names = append(names, plot.Tick{Value: float64(len(s.Rows) - 1 - i), Label: name})
	}
	pl.Y.Tick.Marker = plot.ConstantTicks(names)
	pl.Y.Min, pl.Y.Max = -0.6, float64(len(s.Rows)+len(s.Rivals))+0.2 // the legend is above the rows
	pl.X.Min, pl.X.Max = low-0.03*(high-low), high+0.05*(high-low)
	if left {
		pl.X.Tick.Marker = latencyTicks{upTo: high + 0.1}
	}
	return pl, legend
}
