package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// agreement is how the figures of one policy by the real clock compare with those in virtual time, over the calls
// that both made.
type agreement struct {
	policy string
	ratios []float64 // of each of the tails, real by virtual
	more   []float64 // of each of the tails, real less virtual, in milliseconds
	extra  float64   // extra load, real less virtual
}

// The clocks agree where percentiles are within so much of each other, or within what a call over a socket takes by
// itself, which is nothing in virtual time; and where the extra load is within so many hedges for each call.
const (
	agreeWithin = 0.05
	socketTakes = 0.2 // ms
)

const agreementText = "Loopback by virtual time, over the calls that both made; they agree where they are within 5% of each other, or within\n" +
	"0.2 ms, which is about what a call over a socket takes by itself:"

func agreements(runs []clockRun) []agreement {
	i := slices.IndexFunc(runs, func(r clockRun) bool { return r.clock == realClock })
	j := slices.IndexFunc(runs, func(r clockRun) bool { return r.clock == virtualClock })
	if i < 0 || j < 0 {
		return nil
	}
	var all []agreement
	for _, real := range runs[i].results {
		k := slices.IndexFunc(runs[j].results, func(r *result) bool { return r.policy.name == real.policy.name })
		if k < 0 {
			continue
		}
		virtual := runs[j].results[k]
		calls := min(len(real.latencies), len(virtual.latencies))
		r, v := slices.Sorted(slices.Values(real.latencies[:calls])), slices.Sorted(slices.Values(virtual.latencies[:calls]))
		a := agreement{policy: real.policy.name, extra: real.extraLoad() - virtual.extraLoad()}
		for _, q := range tails {
			a.ratios = append(a.ratios, float64(quantile(r, q))/float64(quantile(v, q)))
			a.more = append(a.more, float64(quantile(r, q)-quantile(v, q))/1e6)
		}
		all = append(all, a)
	}
	return all
}

// apart names the figures that do not agree.
func (a agreement) apart() []string {
	var names []string
	for i, q := range tails {
		if !(math.Abs(a.ratios[i]-1) <= agreeWithin || math.Abs(a.more[i]) <= socketTakes) {
			names = append(names, percentileName(q))
		}
	}
	if math.Abs(a.extra) > agreeWithin {
		names = append(names, "extra load")
	}
	return names
}

func agreementSheet(all []agreement) *sheet {
	if len(all) == 0 {
		return nil
	}
	s := &sheet{labels: 1, columns: []column{{"policy", "policy"}}}
	for _, q := range tails {
		s.columns = append(s.columns, column{percentileName(q), percentileName(q) + "_ratio"})
	}
	s.columns = append(s.columns, column{"extra load", "extra_load_difference"}, column{"they agree", "apart"})
	for _, a := range all {
		cells := []cell{word(a.policy)}
		for _, r := range a.ratios {
			cells = append(cells, factor(r))
		}
		verdict := "yes"
		if apart := a.apart(); len(apart) > 0 {
			verdict = "not in " + strings.Join(apart, ", ")
		}
		s.add(append(cells, cell{fmt.Sprintf("%+.1f%%", 100*a.extra), fmt.Sprintf("%.5f", a.extra)}, word(verdict))...)
	}
	return s
}
