package main

import (
	"fmt"
	"slices"
	"time"
)

// weakSpots is the table of workloads on which policies do harm or nothing: of each policy, what it makes
// slower than no hedging does, and where its extra load buys nothing.
func weakSpots(all []*findings) *sheet {
	s := &sheet{labels: 3, columns: []column{{"policy", "policy"}, {"workload", "workload"}, {"calls", "part"},
		{"worst", "percentile"}, {"times none's", "ratio"}, {"extra load", "extra_load"}, {"what it is", "verdict"}}}
	type spot struct {
		policy string
		cells  []cell
	}
	var spots []spot
	for _, f := range all {
		run := f.runs[len(f.runs)-1]
		i := slices.IndexFunc(run.results, func(r *result) bool { return r.policy.name == none })
		if i < 0 {
			continue
		}
		plain := run.results[i]
		parts := append([]part{everyCall}, f.workload.parts...)
		for _, r := range run.results {
			for _, p := range parts {
				if w := worstOf(plain.of(p), r.of(p)); w.by > 0 {
					if v := w.verdict(r.extraLoad()); v != "" && (p.name == everyCall.name || w.by >= worseFrom) {
						spots = append(spots, spot{r.policy.name, []cell{word(r.policy.name), word(f.workload.name), word(p.name),
							word(w.worst), factor(w.by), share(r.extraLoad()), word(v)}})
					}
				}
			}
		}
	}
	order := policyNames()
	slices.SortStableFunc(spots, func(a, b spot) int { return slices.Index(order, a.policy) - slices.Index(order, b.policy) })
	for i, spot := range spots {
		if i > 0 && spot.policy != spots[i-1].policy {
			s.line()
		}
		s.add(spot.cells...)
	}
	return s
}

var everyCall = part{"all", func(int, int) bool { return true }}

// worst is the percentile of hedged calls that compares worst with the unhedged ones.
type worst struct {
	worst  string
	by     float64 // hedged by unhedged; 0 without calls
	better bool    // some other percentile is better
}

// What counts as a difference: the draws are the same, so that little of it is chance.
const (
	worseFrom  = 1.02
	betterFrom = 0.98
)

func worstOf(plain, hedged []time.Duration) worst {
	var w worst
	if len(plain) == 0 || len(hedged) == 0 {
		return w
	}
	for _, q := range tails {
		by := float64(quantile(hedged, q)) / float64(max(quantile(plain, q), 1))
		if by > w.by {
			w.worst, w.by = percentileName(q), by
		}
		w.better = w.better || by < betterFrom
	}
	return w
}

// verdict says what is wrong, if anything.
func (w worst) verdict(extraLoad float64) string {
	switch {
	case w.by >= worseFrom && w.better:
		return "slower here, faster elsewhere"
	case w.by >= worseFrom:
		return "slower"
	case !w.better && extraLoad >= 0.01:
		return fmt.Sprintf("no faster, for %s more load", percent(extraLoad))
	}
	return ""
}
