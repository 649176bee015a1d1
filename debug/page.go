package debug

import (
	"html/template"
	"io"
)

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"count": count, "percent": percent, "short": short, "counts": otherCounts, "helped": helped,
	"interval": interval, "bar": func(share float64) int { return int(100*share + 0.5) },
}).ParseFS(assets, "page.html"))

// Clock is when the page was made.
func (v *view) Clock() string { return v.At.Format("15:04:05") }

// writePage writes the page, or only the part of it that changes.
func (v *view) writePage(w io.Writer, part bool) error {
	if part {
		return page.ExecuteTemplate(w, "main", v)
	}
	return page.Execute(w, v)
}
