package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// sheet is a table of figures: for the eye, as Markdown and as CSV.
type sheet struct {
	labels  int // leading columns that are text
	columns []column
	rows    [][]cell // nil for a line between rows
}

// column has a title for the eye and one for programs, with the unit in it.
type column struct{ title, field string }

// cell is one figure, as the eye and as a program want it.
type cell struct{ text, plain string }

func word(s string) cell { return cell{s, s} }

func latency(d time.Duration) cell {
	return cell{millis(d), strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 3, 64)}
}

func share(x float64) cell { return cell{percent(x), strconv.FormatFloat(x, 'f', 5, 64)} }

func number(n int64) cell { return cell{count(n), strconv.FormatInt(n, 10)} }

func factor(x float64) cell { return cell{ratio(x), strconv.FormatFloat(x, 'f', 4, 64)} }

func (s *sheet) add(cells ...cell) { s.rows = append(s.rows, cells) }

// line separates what follows from what was.
func (s *sheet) line() { s.rows = append(s.rows, nil) }

// writer returns the table with its cells as the eye or as a program wants them.
func (s *sheet) writer(w io.Writer, forEyes bool) table.Writer {
	var header []string
	for _, c := range s.columns {
		if forEyes {
			header = append(header, c.title)
		} else {
			header = append(header, c.field)
		}
	}
	t := newTable(w, s.labels, header...)
	for _, cells := range s.rows {
		if cells == nil {
			if forEyes {
				t.AppendSeparator()
			}
			continue
		}
		var texts []string
		for _, c := range cells {
			if forEyes {
				texts = append(texts, c.text)
			} else {
				texts = append(texts, c.plain)
			}
		}
		t.AppendRow(row(texts...))
	}
	return t
}

func (s *sheet) print(w io.Writer) { s.writer(w, true).Render() }
func (s *sheet) csv() string       { return s.writer(nil, false).RenderCSV() + "\n" }
func (s *sheet) markdown() string  { return s.writer(nil, true).RenderMarkdown() + "\n" }

// percentileColumns are the columns of the tails.
func percentileColumns() []column {
	var columns []column
	for _, q := range tails {
		columns = append(columns, column{percentileName(q), fmt.Sprintf("%s_ms", percentileName(q))})
	}
	return columns
}

func percentileCells(sorted []time.Duration) []cell {
	var cells []cell
	for _, q := range tails {
		cells = append(cells, latency(quantile(sorted, q)))
	}
	return cells
}
