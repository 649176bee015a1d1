package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/table"
	"github.com/grpchedge/hedge/bench/workload"
)

// agreement compares a policy's figures in real and virtual time, over the calls made in both.
type agreement struct {
	policy string
	ratios []float64 // of each of the tails, real by virtual
	more   []float64 // of each of the tails, real less virtual, in milliseconds
	extra  float64   // extra load, real less virtual
}

// The clocks agree where the ratio of percentiles is within agreeWithin of 1 or their difference
// within socketTakes, the time that a call over a socket takes by itself; and where the extra loads
// differ by at most agreeWithin.
const (
	agreeWithin = 0.05
	socketTakes = 0.2 // ms
)

const agreementText = "Loopback by virtual time, over the calls that both made; they agree where they are within " +
	"5% of each other, or within\n" +
	"0.2 ms, which is about what a call over a socket takes by itself:"

func agreements(runs []clockRun) []agreement {
	i := slices.IndexFunc(runs, func(r clockRun) bool { return r.clock == workload.RealClock })
	j := slices.IndexFunc(runs, func(r clockRun) bool { return r.clock == workload.VirtualClock })
	if i < 0 || j < 0 {
		return nil
	}
	var all []agreement
	for _, real := range runs[i].results {
		virtual := runs[j].of(real.Policy.Name)
		if virtual == nil {
			continue
		}
		calls := min(len(real.Latencies), len(virtual.Latencies))
		r, v := slices.Sorted(slices.Values(real.Latencies[:calls])), slices.Sorted(slices.Values(virtual.Latencies[:calls]))
		a := agreement{policy: real.Policy.Name, extra: real.ExtraLoad() - virtual.ExtraLoad()}
		for _, q := range figure.Tails {
			a.ratios = append(a.ratios, float64(figure.Quantile(r, q))/float64(figure.Quantile(v, q)))
			a.more = append(a.more, float64(figure.Quantile(r, q)-figure.Quantile(v, q))/1e6)
		}
		all = append(all, a)
	}
	return all
}

// apart returns the names of the figures that do not agree.
func (a agreement) apart() []string {
	var names []string
	for i, q := range figure.Tails {
		if !(math.Abs(a.ratios[i]-1) <= agreeWithin || math.Abs(a.more[i]) <= socketTakes) {
			names = append(names, figure.PercentileName(q))
		}
	}
	if math.Abs(a.extra) > agreeWithin {
		names = append(names, "extra load")
	}
	return names
}

func agreementSheet(all []agreement) *table.Sheet {
	if len(all) == 0 {
		return nil
	}
	s := &table.Sheet{Labels: 1, Columns: table.Columns("policy", "policy")}
	for _, q := range figure.Tails {
		s.Columns = append(s.Columns,
			table.Column{Title: figure.PercentileName(q), Field: figure.PercentileName(q) + "_ratio"})
	}
	s.Columns = append(s.Columns, table.Column{Title: "extra load", Field: "extra_load_difference"},
		table.Column{Title: "they agree", Field: "apart"})
	for _, a := range all {
		cells := []table.Cell{table.Word(a.policy)}
		for _, r := range a.ratios {
			cells = append(cells, table.Factor(r))
		}
		verdict := "yes"
		if apart := a.apart(); len(apart) > 0 {
			verdict = "not in " + strings.Join(apart, ", ")
		}
		s.Add(append(cells, table.Cell{Text: fmt.Sprintf("%+.1f%%", 100*a.extra),
			Plain: fmt.Sprintf("%.5f", a.extra)}, table.Word(verdict))...)
	}
	return s
}
