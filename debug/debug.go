// Package debug shows what a scheduler does and why, on a page for people, as JSON and as plain text.
//
//	http.Handle("/debug/hedge/", debug.Handler(s))
//
// The page has, for each target and method, what is in force in a sentence, latency with and without hedging, and the last
// ten minutes. It updates itself, needs nothing from elsewhere, and changes nothing. Like other pages under /debug/, it
// names targets and methods, so do not serve it to the public. Import it as hedgedebug beside another
// package debug, such as runtime/debug.
package debug

import (
	"cmp"
	"embed"
	"encoding/json"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	texttemplate "text/template"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/registry"
)

//go:embed page.html page.txt style.css script.js
var assets embed.FS

var (
	functions = template.FuncMap{
		"count": count, "percent": percent, "short": short, "counts": otherCounts, "winShare": winShare, "plain": plain, "plural": plural,
		"bar": func(share float64) int { return int(100*share + 0.5) },
	}
	page = template.Must(template.New("page.html").Funcs(functions).ParseFS(assets, "page.html"))
	text = texttemplate.Must(texttemplate.New("page.txt").Funcs(functions).ParseFS(assets, "page.txt"))
)

// Handler returns a handler of GET and HEAD requests, to be registered under any path. It answers a browser with the page,
// and anything else, such as curl, with plain text. A request for application/json gets JSON. The query overrides this:
// ?format=html, ?format=text or ?format=json. With ?filter=, only targets and methods that contain the text are shown, and
// at most ?limit= of them, those with the most calls; the default is 50.
//
// From this call on, the scheduler keeps the last ten minutes of each method, in 5 KB. A
// nil s has no methods. The handler may be called concurrently.
func Handler(s *hedge.Scheduler) http.Handler {
	registry.Of(s).KeepHistory()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(s, w, r) })
}

func serve(s *hedge.Scheduler, w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this page only reads", http.StatusMethodNotAllowed)
		return
	}
	header := w.Header()
	// A browser loads what this handler serves and nothing else.
	header.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	query := r.URL.Query()
	switch name := query.Get("asset"); name {
	case "":
	case "style.css", "script.js":
		http.ServeFileFS(w, r, assets, name)
		return
	default:
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), "50"))
	format := cmp.Or(query.Get("format"), accepted(r.Header.Get("Accept")))
	contentType := map[string]string{"json": "application/json", "text": "text/plain; charset=utf-8", "html": "text/html; charset=utf-8"}[format]
	if err != nil || limit < 1 || contentType == "" {
		http.Error(w, "allowed: ?format=html, text or json; ?limit= a number from 1; ?filter= any text", http.StatusBadRequest)
		return
	}
	header.Set("Content-Type", contentType)
	v := newView(s, query.Get("filter"), limit)
	switch format { // an error means that the client has gone
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(v)
	case "text":
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		_ = text.Execute(table, v)
		_ = table.Flush()
	case "html":
		part := "page.html"
		if query.Get("part") == "main" { // what changes
			part = "main"
		}
		_ = page.ExecuteTemplate(w, part, v)
	}
}

// accepted returns the format for a request without ?format=.
func accepted(accept string) string {
	switch {
	case strings.Contains(accept, "text/html"):
		return "html"
	case strings.Contains(accept, "application/json"):
		return "json"
	}
	return "text"
}
