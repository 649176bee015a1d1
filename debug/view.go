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

// view is the content of the page at one moment. In JSON, times of type time.Duration are
// nanoseconds.
type view struct {
	At            time.Time    `json:"at"`
	Paused        bool         `json:"paused"`
	BudgetPercent float64      `json:"budget_percent"`
	Totals        stats.Counts `json:"totals"`
	Methods       []row        `json:"methods"`
	// NotShown is the number of methods that the limit or the filter leaves out.
	NotShown int64  `json:"not_shown"`
	Filter   string `json:"filter,omitempty"`
}

// row is one method of one target.
type row struct {
	Sentence string            `json:"sentence"`
	Notes    []string          `json:"notes,omitempty"` // hints for an operator
	Stats    stats.Method      `json:"stats"`
	History  []registry.Sample `json:"history"`

	at            time.Time // of the view
	budgetPercent float64
}

func newRow(t stats.Method, config settings.Config, at time.Time) row {
	return row{
		Sentence: sentence(t, config), Notes: notes(t, at), Stats: t,
		at: at, budgetPercent: config.BudgetPercent,
	}
}

// newView returns a view of at most limit methods.
func newView(s *hedge.Scheduler, filter string, limit int) *view {
	known := (*registry.Registry)(s)
	config := known.Config()
	v := &view{
		At: time.Now(), Paused: known.Pause().Load() != "", BudgetPercent: config.BudgetPercent,
		Totals: s.Stats(), Filter: filter, Methods: []row{},
	}
	all := s.Methods()
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
		r := newRow(t, known.ConfigOf(t.Target, t.Method), v.At)
		if n, nothing := known.NothingSelected(t.Target); nothing { // as in hedge.WithLogger
			why := strings.ToUpper(n.Why[:1]) + n.Why[1:]
			r.Notes = append(r.Notes, why+". Methods seen: "+list(n.Methods, n.More)+".")
		}
		r.History = known.History(t.Target, t.Method)
		v.Methods = append(v.Methods, r)
	}
	return v
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
