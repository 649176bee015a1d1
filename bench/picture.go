package main

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
)

// pictureFormats are the formats that writePicture knows, by the ending of the path.
var pictureFormats = map[string]func(w, h vg.Length) vg.CanvasWriterTo{
	".png": func(w, h vg.Length) vg.CanvasWriterTo {
		return smallPNG{vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(144))}
	},
	".svg": func(w, h vg.Length) vg.CanvasWriterTo { return vgsvg.New(w, h) },
}

// canDraw reports whether the ending of a path is that of a format that there is.
func canDraw(path string) bool { return pictureFormats[filepath.Ext(path)] != nil }

// panel is one diagram of latency by percentile.
type panel struct {
	title  string
	noun   string // what has the latencies, in the plural
	value  string // what the latencies are
	curves []curve
	notes  []note
}

// curve is the distribution of one policy's latencies, sorted.
type curve struct {
	label  string
	sorted []time.Duration
	look   int // an index of looks
}

// note is a latency that is worth a line of its own.
type note struct {
	label   string
	latency time.Duration
}

// lookCount is how many looks there are.
const lookCount = 6

// The looks of curves: a dash and a marker each, so that they differ without their colours too, which are of
// the Okabe-Ito palette and so differ to every eye.
var looks = [lookCount]struct {
	color  color.Color
	dashes []vg.Length
	marker draw.GlyphDrawer
	// Where a value is written: above its mark or below, so that those of two curves close by do not collide.
	valueAlign  text.YAlignment
	valueOffset vg.Length
}{
	{color.RGBA{R: 0xd5, G: 0x5e, A: 0xff}, []vg.Length{vg.Points(7), vg.Points(4)}, draw.PyramidGlyph{}, draw.YBottom, vg.Points(6)},
	{color.RGBA{G: 0x72, B: 0xb2, A: 0xff}, nil, draw.CircleGlyph{}, draw.YTop, vg.Points(-6)},
	{color.RGBA{G: 0x9e, B: 0x73, A: 0xff}, []vg.Length{vg.Points(2), vg.Points(3)}, draw.BoxGlyph{}, draw.YBottom, vg.Points(6)},
	{color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff}, []vg.Length{vg.Points(10), vg.Points(3), vg.Points(2), vg.Points(3)}, draw.CrossGlyph{}, draw.YTop, vg.Points(-6)},
	{color.RGBA{R: 0xe6, G: 0x9f, A: 0xff}, []vg.Length{vg.Points(5), vg.Points(2)}, draw.RingGlyph{}, draw.YBottom, vg.Points(6)},
	{color.Gray{0x33}, []vg.Length{vg.Points(1), vg.Points(2)}, draw.PlusGlyph{}, draw.YTop, vg.Points(-6)},
}

const (
	panelWidth  = 8 * vg.Inch
	panelHeight = 5 * vg.Inch
)

// diagram is what a picture is made of.
type diagram interface {
	draw(c draw.Canvas)
	height() vg.Length
}

// writePicture draws diagrams one below the other, all as high as the highest.
func writePicture[D diagram](path string, diagrams []D) error {
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

// tailPosition is where a quantile stands on an axis that gives each further nine the same room: 0 for the
// fastest call, 1 for p90, 2 for p99.
func tailPosition(q float64) float64 { return -math.Log10(1 - q) }

// drawnFrom is the first quantile that is drawn: the few fastest calls are nobody's concern.
const drawnFrom = 0.01

// drawnTo is the last quantile that is drawn: so many calls are slower that the curve means something.
func drawnTo(calls int) float64 { return 1 - 10/float64(max(calls, 20)) }

func (p panel) height() vg.Length { return panelHeight }

func (p panel) draw(c draw.Canvas) {
	pl, legend := newPlot(p.title, "percentile of "+p.noun+" (each further nine takes the same room)", p.value+" (ms, log scale)")
	end := 0.0
	for _, c := range p.curves {
		end = max(end, tailPosition(drawnTo(len(c.sorted))))
	}
	pl.X.Tick.Marker = tailTicks(end)
	for _, n := range p.notes {
		pl.Add(n.line(end))
		legend.Add(n.label, n.line(end))
	}
	for _, curve := range p.curves {
		curve.add(pl, legend, len(p.curves) <= 2)
	}
	pl.X.Min, pl.X.Max = 0, end
	pl.Y.Tick.Marker = latencyTicks{upTo: pl.Y.Max + 0.2}
	fitBelowLegend(pl, len(p.curves)+len(p.notes), p.height())
	drawWithLegend(pl, legend, c)
}

// newPlot returns a plot with a grid and, apart, its legend.
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

// fitBelowLegend makes room at the top of the vertical axis of a diagram so high for a legend of so many lines.
func fitBelowLegend(pl *plot.Plot, lines int, height vg.Length) {
	pl.Y.Max = max(pl.Y.Max, pl.Y.Min+1)
	values := pl.Y.Max - pl.Y.Min
	legend := 0.09 + 0.08*float64(lines)*float64(panelHeight/height)
	pl.Y.Min -= 0.04 * values
	pl.Y.Max += legend * values
}

func (n note) line(end float64) *plotter.Line {
	y := latencyPosition(n.latency)
	line := &plotter.Line{XYs: plotter.XYs{{X: 0, Y: y}, {X: end, Y: y}}}
	line.Color, line.Width = color.Gray{0x55}, vg.Points(1)
	line.Dashes = []vg.Length{vg.Points(1), vg.Points(3)}
	return line
}

// steps is how many points of a curve are drawn: more than the eye can tell apart.
const steps = 600

// add draws the curve, marks the percentiles that the table shows, and may write the slowest of them out.
func (c curve) add(pl *plot.Plot, legend *plot.Legend, withValues bool) {
	look := looks[c.look]
	from, to := tailPosition(drawnFrom), tailPosition(drawnTo(len(c.sorted)))
	var points plotter.XYs
	for step := range steps + 1 {
		x := from + (to-from)*float64(step)/steps
		points = append(points, c.at(x, 1-math.Pow(10, -x)))
	}
	line := &plotter.Line{XYs: points}
	line.Color, line.Width, line.Dashes = look.color, vg.Points(2.2), look.dashes

	marks := &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: look.color, Radius: vg.Points(4), Shape: look.marker}}
	values := plotter.XYLabels{}
	for _, q := range tails {
		if x := tailPosition(q); x <= to {
			marks.XYs = append(marks.XYs, c.at(x, q))
			if q >= 0.99 && withValues {
				values.XYs = append(values.XYs, c.at(x, q))
				values.Labels = append(values.Labels, millis(quantile(c.sorted, q)))
			}
		}
	}
	pl.Add(line, marks)
	legend.Add(c.label, line, marks)
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

func (c curve) at(x, q float64) plotter.XY {
	return plotter.XY{X: x, Y: latencyPosition(quantile(c.sorted, q))}
}

// latencyPosition is where a latency stands on an axis that gives each factor of ten the same room: 0 for 1 ms,
// 1 for 10 ms. Latencies below 1 µs are drawn there. The plot's own log scale is no use: it takes the middle of
// the axis, where the label goes, for that of the values.
func latencyPosition(d time.Duration) float64 {
	return math.Log10(float64(max(d, time.Microsecond)) / float64(time.Millisecond))
}

// tailTicks names the percentiles that a reader looks for, up to a position.
func tailTicks(end float64) plot.ConstantTicks {
	ticks := plot.ConstantTicks{{Value: 0, Label: "0"}}
	for _, q := range []float64{0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999} {
		if x := tailPosition(q); x <= end {
			ticks = append(ticks, plot.Tick{Value: x, Label: percentileName(q)[1:]})
		}
	}
	return ticks
}

// latencyTicks are 1, 2 and 5 times the powers of ten, or the powers alone, labelled in milliseconds.
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

// tickLabel writes a number that has one digit other than 0.
func tickLabel(x float64) string {
	return strconv.FormatFloat(x, 'f', max(0, -int(math.Floor(math.Log10(x)+1e-9))), 64)
}
