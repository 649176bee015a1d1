// Package table renders figures as text for a terminal, as Markdown and as CSV.
package table

import (
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// New returns a table. Its first columns, labels in number, are text; the others are numbers.
func New(w io.Writer, labels int, header ...string) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	style := table.StyleLight
	style.Options = table.Options{SeparateHeader: true}
	style.Format.Header = text.FormatDefault
	style.Box.MiddleHorizontal, style.Box.MiddleSeparator = "-", "-"
	t.SetStyle(style)
	var columns []table.ColumnConfig
	for i := range header {
		align := text.AlignRight
		if i < labels {
			align = text.AlignLeft
		}
		columns = append(columns, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align})
	}
	t.SetColumnConfigs(columns)
	t.AppendHeader(Row(header...))
	return t
}

// Row returns a row of text cells.
func Row(cells ...string) table.Row {
	r := make(table.Row, len(cells))
	for i, c := range cells {
		r[i] = c
	}
	return r
}
