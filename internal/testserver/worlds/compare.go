package worlds

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/grpchedge/hedge/internal/trigger"
)

// Policy is the trigger Auto, or one to compare with, with the same budget: no hedging, a percentile
// of the latency, or a fixed delay as a multiple of the method's median.
type Policy struct {
	Name              string
	Quantile, Medians float64
}

var (
	Auto  = Policy{Name: "auto"}
	Never = Policy{Name: "plain", Quantile: 1}

	// finer are more to compare with in the traffic of services and with stateful backends.
	finer = []Policy{
		{Name: "p99", Quantile: .99}, {"1.5 medians", 0, 1.5}, {"2 medians", 0, 2}, {"8 medians", 0, 8},
		{"15 medians", 0, 15}, {"40 medians", 0, 40},
	}
	simpler = []Policy{
		Never, {Name: "p90", Quantile: .90}, {Name: "p95", Quantile: .95},
		{"3 medians", 0, 3}, {"5 medians", 0, 5}, {"10 medians", 0, 10},
	}
)

// configure sets c to the policy, and returns the fixed estimate of each method, if any.
func (p Policy) configure(c *trigger.Config, medians []float64) (known []*trigger.Estimate) {
	c.Auto = p == Auto
	switch {
	case p.Medians > 0:
		for _, m := range medians {
			plan := trigger.HedgePlan{Delay: max(inMillis(p.Medians*m), c.MinDelay), Probability: 1, Hedges: c.MaxHedges}
			known = append(known, &trigger.Estimate{HedgePlan: plan})
		}
	case p == Never:
		c.MaxHedges = 0
	case !c.Auto:
		c.Quantile = p.Quantile
	}
	return known
}

// Measures are p50, p90, p95, p99, p99.9 and the mean of latencies, in ms, or in multiples of the
// method's median if a world has several methods. A percentile with fewer than ten values beyond it
// is NaN.
type Measures [6]float64

// Measured names the measures.
var Measured = [...]string{"p50", "p90", "p95", "p99", "p99.9", "mean"}

func measuresOf(took []float64) (m Measures) {
	slices.Sort(took)
	for i, q := range []float64{.5, .9, .95, .99, .999} {
		m[i] = math.NaN()
		if n := float64(len(took)); n*(1-q) >= 10 {
			m[i] = took[int(q*n)]
		}
	}
	for _, x := range took {
		m[5] += x / float64(len(took))
	}
	return m
}

// Result is the outcome of a policy in a world.
type Result struct {
	All     Measures
	Methods []Measures // of each, if there are several
	Load    float64    // hedges per 100 calls
	Useless float64    // calls per 100 that were hedged and answered by their primary
}

// Result measures the judged calls. Load and Useless are of all calls but the first.
func (s *Simulation) Result() (r Result) {
	w, calls := s.world, s.Calls[max(cmp.Or(s.world.First, len(s.Calls)/10), 0):]
	all, methods := []float64(nil), make([][]float64, len(w.Medians))
	for _, c := range calls {
		r.Load += 100 * float64(c.Hedges) / float64(len(calls))
		if c.Useless {
			r.Useless += 100 / float64(len(calls))
		}
		if w.Judged != nil && !w.Judged(c.At) {
			continue
		}
		x := float64(c.Took) / float64(time.Millisecond)
		if len(w.Medians) > 1 {
			x /= w.Medians[c.Method]
		}
		all, methods[c.Method] = append(all, x), append(methods[c.Method], x)
	}
	if w.Longest > 1 {
		for i := range len(all) / w.Longest {
			all[i] = slices.Max(all[i*w.Longest : (i+1)*w.Longest])
		}
		all = all[:len(all)/w.Longest]
	}
	r.All = measuresOf(all)
	for _, took := range methods {
		r.Methods = append(r.Methods, measuresOf(took))
	}
	return r
}

// Mean returns the mean results of a policy over seeds from 1 on.
func (w World) Mean(p Policy, seeds int) (mean Result) {
	for seed := range seeds {
		r := w.Run(uint64(seed+1), p).Result()
		if seed == 0 {
			mean.Methods = make([]Measures, len(r.Methods))
		}
		mean.Load, mean.Useless = mean.Load+r.Load/float64(seeds), mean.Useless+r.Useless/float64(seeds)
		for i := range r.All {
			mean.All[i] += r.All[i] / float64(seeds)
			for m := range r.Methods {
				mean.Methods[m][i] += r.Methods[m][i] / float64(seeds)
			}
		}
	}
	return mean
}

// Comparison compares Auto with the best simpler policy, chosen for each measure.
type Comparison struct {
	Ratio   Measures   // to the best
	Methods []Measures // the same for each method, if there are several
	Load    float64
	Row     string // of a table
}

// Compare runs the world under all policies.
func (w World) Compare(seeds int) (c Comparison) {
	plain := w.Mean(Never, seeds)
	best, names := plain, [6]string{}
	best.Methods = slices.Clone(plain.Methods)
	for i := range names {
		names[i] = Never.Name
	}
	policies := simpler[1:]
	if w.Kind == services || w.Kind == states {
		policies = append(slices.Clone(policies), finer...)
	}
	for _, p := range policies {
		r := w.Mean(p, seeds)
		for i, x := range r.All {
			if x < best.All[i] {
				best.All[i], names[i] = x, p.Name
			}
			for m := range r.Methods {
				best.Methods[m][i] = min(best.Methods[m][i], r.Methods[m][i])
			}
		}
	}
	auto := w.Mean(Auto, seeds)
	cells := []string{w.Name}
	for i, x := range auto.All {
		c.Ratio[i] = x / best.All[i]
		if cell := "–"; math.IsNaN(x) {
			cells = append(cells, cell)
		} else {
			cells = append(cells, fmt.Sprintf("%s → %s, %.2f %s", short(plain.All[i]), short(x), c.Ratio[i], names[i]))
		}
	}
	if len(auto.Methods) > 1 {
		c.Methods = slices.Clone(auto.Methods)
		for m := range c.Methods {
			for i := range c.Methods[m] {
				c.Methods[m][i] /= best.Methods[m][i]
			}
		}
	}
	c.Load = auto.Load
	c.Row = fmt.Sprintf("| %s | %.1f%% | %.1f%% |", strings.Join(cells, " | "), auto.Load, auto.Useless)
	return c
}

// GeometricMean returns the geometric mean of each measure, without NaN.
func GeometricMean(of []Measures) (mean Measures) {
	for i := range mean {
		sum, n := 0.0, 0.0
		for _, m := range of {
			if !math.IsNaN(m[i]) {
				sum, n = sum+math.Log(m[i]), n+1
			}
		}
		mean[i] = math.Exp(sum / max(n, 1))
	}
	return mean
}

// short formats a number with three digits.
func short(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}
