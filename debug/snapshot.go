package debug

import (
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/stats"
)

// snapshot is what is shown, at one moment. Its JSON has times in nanoseconds, as fields of type time.Duration have.
type snapshot struct {
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

	at time.Time // of the snapshot
}

func newRow(t stats.Method, config settings.Config, at time.Time) row {
	return row{Sentence: sentence(t, config), Notes: notes(t, at), Stats: t, at: at}
}

// sample is a time in the last ten minutes.
type sample struct {
	At             time.Time     `json:"at"`
	Tail, Unhedged time.Duration // p99
	// Load is the number of hedges per call since the sample before, and Known whether there was a call since.
	Load  float64
	Known bool
}

const defaultLimit = 50

func limitOf(text string) (limit int, ok bool) {
	if text == "" {
		return defaultLimit, true
	}
	limit, err := strconv.Atoi(text)
	return limit, err == nil && limit > 0
}

// newSnapshot takes a snapshot of at most so many methods; of all if the limit is below 0.
func newSnapshot(s *hedge.Scheduler, filter string, limit int) *snapshot {
	known := registry.Of(s)
	config := known.Config()
	snap := &snapshot{At: time.Now(), Paused: known.Pauses().Everything(), BudgetPercent: config.BudgetPercent, Totals: s.Stats(), Filter: filter, Methods: []row{}}
	all := s.Targets()
	shown := slices.DeleteFunc(slices.Clone(all), func(t stats.Method) bool {
		return !strings.Contains(t.Target, filter) && !strings.Contains(t.Method, filter)
	})
	if limit >= 0 && len(shown) > limit {
		slices.SortStableFunc(shown, func(a, b stats.Method) int { return int(min(max(b.Calls-a.Calls, -1), 1)) })
		shown = shown[:limit]
		slices.SortFunc(shown, func(a, b stats.Method) int {
			if c := strings.Compare(a.Target, b.Target); c != 0 {
				return c
			}
			return strings.Compare(a.Method, b.Method)
		})
	}
	snap.NotShown = len(all) - len(shown)
	for _, t := range shown {
		r := newRow(t, config, snap.At)
		if none, nothing := known.NothingSelected(t.Target); nothing {
			r.Notes = append(r.Notes, nothingSelected(none))
		}
		curve, history := known.Picture(t.Target, t.Method)
		r.Curve, r.History = curve, newSamples(history)
		snap.Methods = append(snap.Methods, r)
	}
	return snap
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
