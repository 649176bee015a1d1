package table

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/grpchedge/hedge/bench/figure"
)

// Sheet is a table of figures that can be printed for people, as Markdown and as CSV.
type Sheet struct {
	Labels  int // leading columns that are text
	Columns []Column
	Rows    [][]Cell // nil for a line between rows
}

// Column has a title for people, and a field name for programs, which contains the unit.
type Column struct{ Title, Field string }

// Columns returns columns from pairs of a title and a field.
func Columns(pairs ...string) []Column {
	var columns []Column
	for pair := range slices.Chunk(pairs, 2) {
		columns = append(columns, Column{pair[0], pair[1]})
	}
	return columns
}

// Cell is one figure: text for people, plain for programs.
type Cell struct{ Text, Plain string }

// Word is a cell of text.
func Word(s string) Cell { return Cell{s, s} }

// Latency is a cell of a duration, in milliseconds for programs.
func Latency(d time.Duration) Cell {
	return Cell{figure.Millis(d), strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 3, 64)}
}

// Share is a cell of a share, as a percentage for people.
func Share(x float64) Cell { return Cell{figure.Percent(x), strconv.FormatFloat(x, 'f', 5, 64)} }

// Number is a cell of a whole number.
func Number(n int64) Cell { return Cell{figure.Count(n), strconv.FormatInt(n, 10)} }

// Factor is a cell of a ratio.
func Factor(x float64) Cell { return Cell{figure.Ratio(x), strconv.FormatFloat(x, 'f', 4, 64)} }

// Add adds a row.
func (s *Sheet) Add(cells ...Cell) { s.Rows = append(s.Rows, cells) }

// Line adds a separator between the rows before and after it.
func (s *Sheet) Line() { s.Rows = append(s.Rows, nil) }

// writer returns the table with its cells as people or as programs read them.
func (s *Sheet) writer(w io.Writer, forEyes bool) table.Writer {
	var header []string
	for _, c := range s.Columns {
		if forEyes {
			header = append(header, c.Title)
		} else {
			header = append(header, c.Field)
		}
	}
	t := New(w, s.Labels, header...)
	for _, cells := range s.Rows {
		if cells == nil {
			if forEyes {
				t.AppendSeparator()
			}
			continue
		}
		var texts []string
		for _, c := range cells {
			if forEyes {
				texts = append(texts, c.Text)
			} else {
				texts = append(texts, c.Plain)
			}
		}
		t.AppendRow(Row(texts...))
	}
	return t
}

// Print writes the sheet for a terminal, CSV and Markdown return it as such.
func (s *Sheet) Print(w io.Writer) { s.writer(w, true).Render() }
func (s *Sheet) CSV() string       { return s.writer(nil, false).RenderCSV() + "\n" }
func (s *Sheet) Markdown() string  { return s.writer(nil, true).RenderMarkdown() + "\n" }

// PercentileColumns are the columns of the tails.
func PercentileColumns() []Column {
	var columns []Column
	for _, q := range figure.Tails {
		columns = append(columns, Column{figure.PercentileName(q), fmt.Sprintf("%s_ms", figure.PercentileName(q))})
	}
	return columns
}

// PercentileCells are the cells of PercentileColumns for sorted latencies, at least one.
func PercentileCells(sorted []time.Duration) []Cell {
	var cells []Cell
	for _, q := range figure.Tails {
		cells = append(cells, Latency(figure.Quantile(sorted, q)))
	}
	return cells
}
