// Package debug shows the state of a scheduler, with its causes, as a web page, as JSON and as
// text.
//
//	http.Handle("/debug/hedge/", debug.Handler(s))
//
// For each target and method the page has a sentence on the current state, the latency with and
// without hedging, and the last ten minutes. The page updates itself, loads nothing from elsewhere,
// and changes nothing. It names targets and methods, so protect it like other pages under /debug/.
// Import it as hedgedebug alongside another package debug, such as runtime/debug.
package debug

import (
	"cmp"
	"embed"
	"encoding/json"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	texttemplate "text/template"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

//go:embed page.html page.txt style.css script.js
var assets embed.FS

var (
	functions = template.FuncMap{
		"count": count, "percent": percent, "short": short, "counts": otherCounts,
		"decided": decided, "plain": plain, "plural": plural,
	}
	page = template.Must(template.New("page.html").Funcs(functions).ParseFS(assets, "page.html"))
	text = texttemplate.Must(texttemplate.New("page.txt").Funcs(functions).ParseFS(assets, "page.txt"))
)

// Handler returns a handler for GET and HEAD requests, to be registered under any path. A browser
// gets the page, a request for application/json gets JSON, and other clients, such as curl, get
// text. These query parameters override this:
//
//   - format: html, text or json.
//   - filter: only targets and methods that contain the text.
//   - limit: the maximum number of methods, from 1; the default is 50. Methods with the most calls come
//     first.
//
// From this call on, the scheduler keeps the last ten minutes of each method, in 5 KB per method. A
// nil s has no methods. The handler may be called concurrently.
func Handler(s *hedge.Scheduler) http.Handler {
	(*registry.Registry)(s).KeepHistory()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(s, w, r) })
}

func serve(s *hedge.Scheduler, w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "must be GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	// A browser loads only resources of this handler.
	header.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "+
			"img-src data:; base-uri 'none'; form-action 'self'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	query := r.URL.Query()
	switch name := query.Get("asset"); name {
	case "":
	case "style.css", "script.js":
		http.ServeFileFS(w, r, assets, name)
		return
	default:
		http.Error(w, "no such asset", http.StatusNotFound)
		return
	}
	limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), "50"))
	format := cmp.Or(query.Get("format"), accepted(r.Header.Get("Accept")))
	contentType := map[string]string{
		"json": "application/json", "text": "text/plain; charset=utf-8", "html": "text/html; charset=utf-8",
	}[format]
	if err != nil || limit < 1 || contentType == "" {
		http.Error(w, "format must be html, text or json; limit must be at least 1", http.StatusBadRequest)
		return
	}
	header.Set("Content-Type", contentType)
	v := newView(s, query.Get("filter"), limit)
	switch format { // an error means that the client has disconnected
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

func accepted(accept string) string {
	switch {
	case strings.Contains(accept, "text/html"):
		return "html"
	case strings.Contains(accept, "application/json"):
		return "json"
	}
	return "text"
}

// view is the content of the page at one moment. In JSON, times of type time.Duration are
// nanoseconds.
type view struct {
	At            time.Time `json:"at"`
	Paused        bool      `json:"paused"`
	BudgetPercent float64   `json:"budget_percent"`
	// Configuration has the options in force, and the last update that was refused.
	Configuration configuration `json:"configuration"`
	Totals        stats.Counts  `json:"totals"`
	Recent        stats.Counts  `json:"recent"` // the sum of stats.Method.Recent: Calls and Failed only
	Methods       []row         `json:"methods"`
	// Unused are the patterns of the options that match nothing in use, ten at most.
	Unused []string `json:"unused,omitempty"`
	// NotShown is the number of methods that the limit or the filter leaves out.
	NotShown int64  `json:"not_shown"`
	Filter   string `json:"filter,omitempty"`
}

// configuration has the options for the page.
type configuration struct {
	Options []string  `json:"options"` // in force; a value that is a Go function is left out
	Since   time.Time `json:"since"`
	Refused *refusal  `json:"refused,omitempty"`
}

// refusal is the last update that was refused.
type refusal struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
	// Last reports whether no update was accepted after it.
	Last bool `json:"last"`
}

func newConfiguration(of registry.Configured) configuration {
	c := configuration{Options: of.Options, Since: of.At}
	if of.Refused != nil {
		c.Refused = &refusal{of.RefusedAt, strings.ReplaceAll(of.Refused.Error(), "\n", "; "), !of.RefusedAt.Before(of.At)}
	}
	return c
}

type row struct {
	Sentence string            `json:"sentence"`
	Notes    []string          `json:"notes,omitempty"` // hints for an operator
	Stats    stats.Method      `json:"stats"`
	History  []registry.Sample `json:"history"`

	at            time.Time // of the view
	budgetPercent float64
}

// newRow returns the row of a method. unhedged is registry.Method.Unhedged.
func newRow(t stats.Method, config *settings.Config, unhedged stats.Reason, at time.Time) row {
	r := row{Sentence: sentence(t, config, unhedged), Stats: t, at: at, budgetPercent: config.BudgetPercent}
	if unhedged == stats.NoReason {
		r.Notes = notes(t, config, at)
	}
	return r
}

func newView(s *hedge.Scheduler, filter string, limit int) *view {
	known := (*registry.Registry)(s)
	config := known.Config()
	v := &view{
		At: time.Now(), Paused: known.Paused() != "", BudgetPercent: config.BudgetPercent,
		Configuration: newConfiguration(known.Configured()),
		Totals:        s.Stats(), Filter: filter, Methods: []row{},
	}
	v.Unused = known.Unused()
	v.Unused = v.Unused[:min(len(v.Unused), 10)]
	all := s.Methods()
	for i := range all {
		v.Recent.Calls += all[i].Recent.Calls
		v.Recent.Failed += all[i].Recent.Failed
	}
	shown := slices.DeleteFunc(slices.Clone(all), func(t stats.Method) bool {
		return !strings.Contains(t.Target, filter) && !strings.Contains(t.Method, filter)
	})
	if len(shown) > limit {
		slices.SortStableFunc(shown, func(a, b stats.Method) int { return cmp.Compare(b.Calls, a.Calls) })
		shown = shown[:limit]
		slices.SortFunc(shown, func(a, b stats.Method) int {
			return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Method, b.Method))
		})
	}
	v.NotShown = int64(len(all) - len(shown))
	for _, t := range shown {
		m := known.Find(t.Target, t.Method)
		if m == nil {
			continue // removed since
		}
		r := newRow(t, m.Settings().Config, m.Unhedged(&t.Counts), v.At)
		r.History = m.History()
		v.Methods = append(v.Methods, r)
	}
	return v
}

// Failing reports whether at least one recent call in a hundred failed.
func (v *view) Failing() bool { return failing(stats.Recent{Counts: v.Recent}) != "" }

// Down reports whether the sentence begins with a fault.
func (r row) Down() bool {
	return r.Stats.Unhedgeable != stats.NoReason || failing(r.Stats.Recent) != "" || busy(r.Stats.Recent)
}

func (v *view) Targets() (targets [][]row) {
	for i, m := range v.Methods {
		if i == 0 || m.Stats.Target != v.Methods[i-1].Stats.Target {
			targets = append(targets, nil)
		}
		last := &targets[len(targets)-1]
		*last = append(*last, m)
	}
	return targets
}
