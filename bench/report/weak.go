package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/table"
	"github.com/grpchedge/hedge/bench/workload"
)

// weakSpots is the table of workloads on which a policy does harm or nothing: where it is slower
// than no hedging, and where its extra load makes nothing faster.
func weakSpots(all []*findings) *table.Sheet {
	s := &table.Sheet{Labels: 3, Columns: table.Columns("policy", "policy", "workload", "workload", "calls",
		"part", "worst", "percentile", "times none's", "ratio", "extra load", "extra_load", "what it is", "verdict")}
	type spot struct {
		policy string
		cells  []table.Cell
	}
	var spots []spot
	for _, f := range all {
		found := f.runs[len(f.runs)-1]
		plain := found.of(policy.None)
		if plain == nil {
			continue
		}
		parts := append([]workload.Part{everyCall}, f.workload.Parts...)
		for _, r := range found.results {
			for _, p := range parts {
				if w := worstOf(plain.Of(p), r.Of(p)); w.by > 0 {
					if v := w.verdict(r.ExtraLoad()); v != "" && (p.Name == everyCall.Name || w.by >= worseFrom) {
						spots = append(spots,
							spot{r.Policy.Name, []table.Cell{table.Word(r.Policy.Name),
								table.Word(f.workload.Name), table.Word(p.Name),
								table.Word(w.worst), table.Factor(w.by), table.Share(r.ExtraLoad()), table.Word(v)}})
					}
				}
			}
		}
	}
	order := policy.Names()
	slices.SortStableFunc(spots,
		func(a, b spot) int { return slices.Index(order, a.policy) - slices.Index(order, b.policy) })
	for i, spot := range spots {
		if i > 0 && spot.policy != spots[i-1].policy {
			s.Line()
		}
		s.Add(spot.cells...)
	}
	return s
}

var everyCall = workload.Part{Name: "all", Has: func(int, int) bool { return true }}

// worst is the percentile at which hedged calls compare worst with the unhedged ones.
type worst struct {
	worst  string
	by     float64 // hedged by unhedged; 0 without calls
	better bool    // some other percentile is better
}

// The least ratios that count as a difference. Both runs have the same draws, so little of a
// difference is chance.
const (
	worseFrom  = 1.02
	betterFrom = 0.98
)

func worstOf(plain, hedged []time.Duration) worst {
	var w worst
	if len(plain) == 0 || len(hedged) == 0 {
		return w
	}
	for _, q := range figure.Tails {
		by := float64(figure.Quantile(hedged, q)) / float64(max(figure.Quantile(plain, q), 1))
		if by > w.by {
			w.worst, w.by = figure.PercentileName(q), by
		}
		w.better = w.better || by < betterFrom
	}
	return w
}

// verdict describes the violation, or returns "" if there is none.
func (w worst) verdict(extraLoad float64) string {
	switch {
	case w.by >= worseFrom && w.better:
		return "slower here, faster elsewhere"
	case w.by >= worseFrom:
		return "slower"
	case !w.better && extraLoad >= 0.01:
		return fmt.Sprintf("no faster, for %s more load", figure.Percent(extraLoad))
	}
	return ""
}
