package debug

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// view is what is shown, at one moment. Its JSON has times in nanoseconds, as fields of type time.Duration have.
type view struct {
	At            time.Time    `json:"at"`
	Paused        bool         `json:"paused"`
	BudgetPercent float64      `json:"budget_percent"`
	Totals        stats.Counts `json:"totals"`
	Methods       []row        `json:"methods"`
	// NotShown is the number of methods that the limit or the filter leaves out.
	NotShown int    `json:"not_shown"`
	Filter   string `json:"filter,omitempty"`
}

// row is one method of one target.
type row struct {
	Sentence string                `json:"sentence"`
	Notes    []string              `json:"notes,omitempty"` // what an operator should know
	Stats    stats.Method          `json:"stats"`
	Curve    []registry.CurvePoint `json:"curve"`
	History  []sample              `json:"history"`

	at            time.Time // of the view
	budgetPercent float64
}

func newRow(t stats.Method, config settings.Config, at time.Time) row {
	return row{Sentence: sentence(t, config), Notes: notes(t, at), Stats: t, at: at, budgetPercent: config.BudgetPercent}
}

// sample is a time in the last ten minutes.
type sample struct {
	At             time.Time     `json:"at"`
	Tail, Unhedged time.Duration // p99
	// Load is the number of hedges per call since the sample before, and Known whether there was a call since.
	Load  float64
	Known bool
}

// newView returns a view of at most so many methods; of all if the limit is below 0.
func newView(s *hedge.Scheduler, filter string, limit int) *view {
	known := registry.Of(s)
	config := known.Config()
	v := &view{At: time.Now(), Paused: known.Pauses().Everything(), BudgetPercent: config.BudgetPercent, Totals: s.Stats(), Filter: filter, Methods: []row{}}
	all := s.Targets()
	shown := slices.DeleteFunc(slices.Clone(all), func(t stats.Method) bool {
		return !strings.Contains(t.Target, filter) && !strings.Contains(t.Method, filter)
	})
	if limit >= 0 && len(shown) > limit {
		slices.SortStableFunc(shown, func(a, b stats.Method) int { return cmp.Compare(b.Calls, a.Calls) })
		shown = shown[:limit]
		slices.SortFunc(shown, func(a, b stats.Method) int {
			return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Method, b.Method))
		})
	}
	v.NotShown = len(all) - len(shown)
	note := ""
	for i, t := range shown {
		if i == 0 || t.Target != shown[i-1].Target {
			note = nothingSelected(known.NothingSelected(t.Target))
		}
		r := newRow(t, config, v.At)
		if note != "" {
			r.Notes = append(r.Notes, note)
		}
		curve, history := known.Picture(t.Target, t.Method)
		r.Curve, r.History = curve, newSamples(history)
		v.Methods = append(v.Methods, r)
	}
	return v
}

// Targets returns the methods of each target.
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

func newSamples(history []registry.Sample) []sample {
	samples := []sample{}
	for i, h := range history {
		s := sample{At: h.At, Tail: h.Tail, Unhedged: h.Unhedged}
		if i > 0 && h.Calls > history[i-1].Calls {
			s.Load, s.Known = float64(h.Hedges-history[i-1].Hedges)/float64(h.Calls-history[i-1].Calls), true
		}
		samples = append(samples, s)
	}
	return samples
}
