package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
)

// frontierOf are the workloads of which the frontier is drawn: p99 against extra load, for fixed delays, for
// percentiles and for the trigger that chooses. What lies below and to the left of all else is worth having.
var frontierOf = []string{"straggler", "ttft", "grpc-java"}

// frontierCalls is how many calls a point is made from.
const (
	frontierCalls      = 20_000
	shortFrontierCalls = 1_000
)

// family is policies that differ in one number, two hedges each.
type family struct {
	name     string
	policies []policy
}

func families() []family {
	fixed := family{name: "fixed delays, 5 ms to 250 ms"}
	for _, ms := range []int{5, 8, 12, 20, 30, 50, 100, 250} {
		delay := time.Duration(ms) * time.Millisecond
		fixed.policies = append(fixed.policies, policy{name: "static-" + delay.String(), dial: static(delay, 2)})
	}
	percentiles := family{name: "percentiles, p70 to p98, no budget"}
	for _, q := range []float64{0.70, 0.75, 0.80, 0.85, 0.90, 0.95, 0.98} {
		percentiles.policies = append(percentiles.policies, policy{
			name: "adaptive-" + percentileName(q),
			dial: ours(hedge.WithPercentile(q), hedge.WithBudgetPercent(unbounded)),
		})
	}
	auto := family{name: "Auto, budgets of 2% to 40%"}
	for _, percent := range []float64{2, 3, 5, 7, 10, 12, 15, 20, 25, 30, 40} {
		auto.policies = append(auto.policies, policy{
			name:   fmt.Sprintf("adaptive-%g%%", percent),
			dial:   ours(hedge.WithBudgetPercent(percent)),
			budget: percent,
		})
	}
	return []family{fixed, percentiles, auto}
}

// point is what one policy reaches.
type point struct {
	policy    string
	extraLoad float64
	p99       time.Duration
}

// frontier is what the policies of each family reach in one workload, by extra load.
type frontier struct {
	workload string
	calls    int
	families []family
	points   [][]point // of each family
}

// findFrontier plays the workload under every policy of the families, in virtual time.
func findFrontier(ctx context.Context, w workload, calls int, seed uint64, log io.Writer) (*frontier, error) {
	law, err := testserver.ParseLaw(w.law)
	if err != nil {
		return nil, err
	}
	f := &frontier{workload: w.name, calls: calls, families: families()}
	c := &comparison{workload: w, law: law, calls: calls, concurrency: 20, backends: w.servers(), seed: seed, clock: virtualClock}
	for _, family := range f.families {
		c.policies = append(c.policies, family.policies...)
	}
	p := startProgress(log, "frontier of "+w.name, int64(calls*len(c.policies)))
	results, _, err := c.run(ctx, p)
	p.end()
	if err != nil {
		return nil, err
	}
	var wrong []error
	for _, family := range f.families {
		var points []point
		for range family.policies {
			r := results[0]
			results = results[1:]
			points = append(points, point{r.policy.name, r.extraLoad(), r.percentile(0.99)})
			wrong = append(wrong, r.err())
		}
		slices.SortFunc(points, func(a, b point) int { return int(math.Copysign(1, a.extraLoad-b.extraLoad)) })
		f.points = append(f.points, points)
	}
	return f, errors.Join(wrong...)
}

// frontiers writes a table and a picture of the frontier of each workload that is asked for.
func (r *report) frontiers(ctx context.Context, w, log io.Writer) error {
	calls := frontierCalls
	if r.short {
		calls = shortFrontierCalls
	}
	table := &sheet{labels: 2, columns: []column{{"workload", "workload"}, {"policy", "policy"}, {"extra load", "extra_load"}, {"p99", "p99_ms"}}}
	var diagrams []tradeOff
	for _, name := range frontierOf {
		if r.workloads != nil && !slices.Contains(r.workloads, name) {
			continue
		}
		f, err := findFrontier(ctx, workloadNamed(name), calls, uint64(r.seed), log)
		if err != nil {
			return fmt.Errorf("frontier of %s: %w", name, err)
		}
		diagrams = append(diagrams, f.diagram())
		for _, points := range f.points {
			table.line()
			for _, p := range points {
				table.add(word(name), word(p.policy), share(p.extraLoad), latency(p.p99))
			}
		}
	}
	if len(diagrams) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nThe frontier: p99 against extra load, %s calls each, in virtual time:\n\n", count(int64(calls)))
	table.print(w)
	return errors.Join(
		os.WriteFile(filepath.Join(r.folder, "frontier.csv"), []byte(table.csv()), 0o644),
		writePicture(filepath.Join(r.folder, "frontier.png"), diagrams),
	)
}

func (f *frontier) diagram() tradeOff {
	d := tradeOff{title: fmt.Sprintf("%s: what extra load buys, %s calls each, virtual time", f.workload, count(int64(f.calls)))}
	for i, points := range f.points {
		c := tradeOffCurve{label: f.families[i].name, look: []int{2, 0, 1}[i]}
		for _, p := range points {
			c.points = append(c.points, tradeOffPoint{p.extraLoad, p.p99})
		}
		d.curves = append(d.curves, c)
	}
	return d
}
