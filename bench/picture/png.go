package picture

import (
	"image"
	"image/color"
	"image/png"
	"io"
	"slices"

	"gonum.org/v1/plot/vg/vgimg"
)

// smallPNG is a canvas that is written as a PNG of at most 256 colours. A diagram has few colours,
// and its file becomes a third as large.
type smallPNG struct{ *vgimg.Canvas }

func (c smallPNG) WriteTo(w io.Writer) (int64, error) {
	counted := &countingWriter{w: w}
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err := encoder.Encode(counted, paletted(c.Image()))
	return counted.n, err
}

// paletted returns the picture in its 256 most frequent colours. A pixel of another colour gets the
// nearest of them.
func paletted(from image.Image) *image.Paletted {
	bounds := from.Bounds()
	uses := map[color.Color]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			uses[from.At(x, y)]++
		}
	}
	colors := make(color.Palette, 0, len(uses))
	for c := range uses {
		colors = append(colors, c)
	}
	slices.SortFunc(colors, func(a, b color.Color) int {
		if uses[a] != uses[b] {
			return uses[b] - uses[a]
		}
		return rank(a) - rank(b) // so that the same picture is the same file
	})
	to := image.NewPaletted(bounds, colors[:min(len(colors), 256)])
	nearest := make(map[color.Color]uint8, len(colors))
	for _, c := range colors {
		nearest[c] = uint8(to.Palette.Index(c))
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			to.SetColorIndex(x, y, nearest[from.At(x, y)])
		}
	}
	return to
}

func rank(c color.Color) int {
	r, g, b, a := c.RGBA()
	return int(r>>8)<<24 | int(g>>8)<<16 | int(b>>8)<<8 | int(a>>8)
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
