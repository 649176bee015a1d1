// Package picture draws diagrams of latency, of load and of their course over time, as PNG or SVG.
package picture

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/grpchedge/hedge/bench/figure"
)

// pictureFormats are the formats that Write knows, by the extension of the path.
var pictureFormats = map[string]func(w, h vg.Length) vg.CanvasWriterTo{
	".png": func(w, h vg.Length) vg.CanvasWriterTo {
		return smallPNG{vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(144))}
	},
	".svg": func(w, h vg.Length) vg.CanvasWriterTo { return vgsvg.New(w, h) },
}

// CanDraw reports whether Write knows the extension of a path.
func CanDraw(path string) bool { return pictureFormats[filepath.Ext(path)] != nil }

// Panel is one diagram of latency by percentile.
type Panel struct {
	Title  string
	Noun   string // the things measured, in the plural
	Value  string // the name of the measured quantity
	Curves []Curve
	Notes  []Note
}

// Curve is the distribution of one policy's latencies, sorted.
type Curve struct {
	Label  string
	Sorted []time.Duration
	Look   int // an index of looks
}

// Note is a latency that is drawn as a line of its own.
type Note struct {
	Label   string
	Latency time.Duration
}

// LookCount is the number of looks: a look is an index from 0 to LookCount - 1.
const LookCount = 6

// looks are a colour, a dash and a marker for each curve. The colours are of the Okabe-Ito palette,
// which colour-blind readers can tell apart; dash and marker differ too.
var looks = [LookCount]struct {
	color  color.Color
	dashes []vg.Length
	marker draw.GlyphDrawer
	// Whether a value is written above its mark or below, so that values of two close curves do not
	// overlap.
	valueAlign  text.YAlignment
	valueOffset vg.Length
}{
	{color.RGBA{R: 0xd5, G: 0x5e, A: 0xff}, []vg.Length{vg.Points(7), vg.Points(4)}, draw.PyramidGlyph{},
		draw.YBottom, vg.Points(6)},
	{color.RGBA{G: 0x72, B: 0xb2, A: 0xff}, nil, draw.CircleGlyph{}, draw.YTop, vg.Points(-6)},
	{color.RGBA{G: 0x9e, B: 0x73, A: 0xff}, []vg.Length{vg.Points(2), vg.Points(3)}, draw.BoxGlyph{},
		draw.YBottom, vg.Points(6)},
	{color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff}, []vg.Length{vg.Points(10), vg.Points(3), vg.Points(2),
		vg.Points(3)}, draw.CrossGlyph{}, draw.YTop, vg.Points(-6)},
	{color.RGBA{R: 0xe6, G: 0x9f, A: 0xff}, []vg.Length{vg.Points(5), vg.Points(2)}, draw.RingGlyph{},
		draw.YBottom, vg.Points(6)},
	{color.Gray{0x33}, []vg.Length{vg.Points(1), vg.Points(2)}, draw.PlusGlyph{}, draw.YTop, vg.Points(-6)},
}

const (
	panelWidth  = 8 * vg.Inch
	panelHeight = 5 * vg.Inch
)

// diagram is one part of a picture.
type diagram interface {
	draw(c draw.Canvas)
	height() vg.Length
}

// Write draws diagrams one below the other, each with the height of the highest, and writes them to
// a .png or .svg file.
func Write[D diagram](path string, diagrams []D) error {
	newCanvas, ok := pictureFormats[filepath.Ext(path)]
	if !ok {
		return fmt.Errorf("a picture is a .png or a .svg, not %q", filepath.Ext(path))
	}
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	highest := vg.Length(0)
	for _, d := range diagrams {
		highest = max(highest, d.height())
	}
	canvas := newCanvas(panelWidth, highest*vg.Length(len(diagrams)))
	tiles := draw.Tiles{Cols: 1, Rows: len(diagrams), PadTop: 10, PadBottom: 6, PadLeft: 6, PadRight: 18, PadY: 14}
	page := draw.New(canvas)
	for i, d := range diagrams {
		d.draw(tiles.At(page, 0, i))
	}

	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(file)
	return errors.Join(err, file.Close())
}

// tailPosition is the place of a quantile on an axis that gives each further nine the same room: 0
// for the fastest call, 1 for p90, 2 for p99.
func tailPosition(q float64) float64 { return -math.Log10(1 - q) }

// drawnFrom is the first quantile that is drawn: the few fastest calls do not matter.
const drawnFrom = 0.01

// drawnTo is the last quantile that is drawn: ten calls are slower, so that the curve still means
// something.
func drawnTo(calls int) float64 { return 1 - 10/float64(max(calls, 20)) }

func (p Panel) height() vg.Length { return panelHeight }

func (p Panel) draw(c draw.Canvas) {
	pl, legend := newPlot(p.Title, "percentile of "+p.Noun+" (each further nine takes the same room)",
		p.Value+" (ms, log scale)")
	end := 0.0
	for _, c := range p.Curves {
		end = max(end, tailPosition(drawnTo(len(c.Sorted))))
	}
	pl.X.Tick.Marker = tailTicks(end)
	for _, n := range p.Notes {
		pl.Add(n.line(end))
		legend.Add(n.Label, n.line(end))
	}
	for _, curve := range p.Curves {
		curve.add(pl, legend, len(p.Curves) <= 2)
	}
	pl.X.Min, pl.X.Max = 0, end
	pl.Y.Tick.Marker = latencyTicks{upTo: pl.Y.Max + 0.2}
	fitBelowLegend(pl, len(p.Curves)+len(p.Notes), p.height())
	drawWithLegend(pl, legend, c)
}

// newPlot returns a plot with a grid and, separately, its legend.
func newPlot(title, x, y string) (*plot.Plot, *plot.Legend) {
	pl := plot.New()
	pl.Title.Text = title
	pl.Title.Padding = vg.Points(10)
	pl.X.Label.Text, pl.Y.Label.Text = x, y
	pl.X.Padding, pl.Y.Padding = 0, 0
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xe4}, color.Gray{0xe4}
	pl.Add(grid)
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	legend.Padding, legend.ThumbnailWidth = vg.Points(2), vg.Points(34)
	return pl, &legend
}

func drawWithLegend(pl *plot.Plot, legend *plot.Legend, c draw.Canvas) {
	pl.Draw(c)
	legend.Draw(draw.Crop(pl.DataCanvas(c), vg.Points(12), 0, 0, vg.Points(-6)))
}

// fitBelowLegend extends the vertical axis of a diagram of the given height, so that a legend of
// the given number of lines fits above the curves.
func fitBelowLegend(pl *plot.Plot, lines int, height vg.Length) {
	pl.Y.Max = max(pl.Y.Max, pl.Y.Min+1)
	values := pl.Y.Max - pl.Y.Min
	legend := 0.09 + 0.08*float64(lines)*float64(panelHeight/height)
	pl.Y.Min -= 0.04 * values
	pl.Y.Max += legend * values
}

func (n Note) line(end float64) *plotter.Line {
	y := latencyPosition(n.Latency)
	line := &plotter.Line{XYs: plotter.XYs{{X: 0, Y: y}, {X: end, Y: y}}}
	line.Color, line.Width = color.Gray{0x55}, vg.Points(1)
	line.Dashes = []vg.Length{vg.Points(1), vg.Points(3)}
	return line
}

// steps is how many points of a curve are drawn: more than a reader can tell apart.
const steps = 600

// add draws the curve and marks the percentiles that the table shows. With values, it also writes
// out the slowest of them.
func (c Curve) add(pl *plot.Plot, legend *plot.Legend, withValues bool) {
	look := looks[c.Look]
	from, to := tailPosition(drawnFrom), tailPosition(drawnTo(len(c.Sorted)))
	var points plotter.XYs
	for step := range steps + 1 {
		x := from + (to-from)*float64(step)/steps
		points = append(points, c.at(x, 1-math.Pow(10, -x)))
	}
	line := &plotter.Line{XYs: points}
	line.Color, line.Width, line.Dashes = look.color, vg.Points(2.2), look.dashes

	marks := &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: look.color, Radius: vg.Points(4), Shape: look.marker}}
	values := plotter.XYLabels{}
	for _, q := range figure.Tails {
		if x := tailPosition(q); x <= to {
			marks.XYs = append(marks.XYs, c.at(x, q))
			if q >= 0.99 && withValues {
				values.XYs = append(values.XYs, c.at(x, q))
				values.Labels = append(values.Labels, figure.Millis(figure.Quantile(c.Sorted, q)))
			}
		}
	}
	pl.Add(line, marks)
	legend.Add(c.Label, line, marks)
	if labels, err := plotter.NewLabels(values); err == nil && len(values.Labels) > 0 {
		for j := range labels.TextStyle {
			labels.TextStyle[j].Color = look.color
			labels.TextStyle[j].Font.Variant = plot.DefaultFont.Variant
			labels.TextStyle[j].XAlign = draw.XCenter
			labels.TextStyle[j].YAlign = look.valueAlign
		}
		labels.Offset.Y = look.valueOffset
		pl.Add(labels)
	}
}

func (c Curve) at(x, q float64) plotter.XY {
	return plotter.XY{X: x, Y: latencyPosition(figure.Quantile(c.Sorted, q))}
}

// latencyPosition is the place of a latency on a logarithmic axis: 0 for 1 ms, 1 for 10 ms.
// Latencies below 1 µs are drawn at 1 µs. The plot package's own log scale is not used because it
// places the axis label in the middle of the values, not of the axis.
func latencyPosition(d time.Duration) float64 {
	return math.Log10(float64(max(d, time.Microsecond)) / float64(time.Millisecond))
}

// tailTicks labels the percentiles that readers look for, up to a position.
func tailTicks(end float64) plot.ConstantTicks {
	ticks := plot.ConstantTicks{{Value: 0, Label: "0"}}
	for _, q := range []float64{0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999} {
		if x := tailPosition(q); x <= end {
			ticks = append(ticks, plot.Tick{Value: x, Label: figure.PercentileName(q)[1:]})
		}
	}
	return ticks
}

// latencyTicks are 1, 2 and 5 times the powers of ten, or the powers alone, in milliseconds.
type latencyTicks struct {
	upTo   float64 // position above which there are none, as where the legend is
	sparse bool    // the powers alone, if there are more than two
}

func (t latencyTicks) Ticks(low, high float64) []plot.Tick {
	digits := []float64{1, 2, 5}
	if t.sparse && min(high, t.upTo)-low > 2 {
		digits = digits[:1]
	}
	var ticks []plot.Tick
	for power := math.Floor(low); power <= high; power++ {
		for _, digit := range digits {
			if at := power + math.Log10(digit); at >= low && at <= min(high, t.upTo) {
				ticks = append(ticks, plot.Tick{Value: at, Label: tickLabel(digit * math.Pow(10, power))})
			}
		}
	}
	return ticks
}

// tickLabel formats a number that has one digit other than 0.
func tickLabel(x float64) string {
	return strconv.FormatFloat(x, 'f', max(0, -int(math.Floor(math.Log10(x)+1e-9))), 64)
}
