package report

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
	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/picture"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/progress"
	"github.com/grpchedge/hedge/bench/table"
	"github.com/grpchedge/hedge/bench/workload"
)

// frontierOf lists the workloads with a frontier: p99 against extra load for fixed delays,
// percentiles and the trigger Auto.
var frontierOf = []string{"straggler", "ttft", "grpc-java"}

// How many calls each point of a frontier is measured from.
const (
	frontierCalls      = 20_000
	shortFrontierCalls = 1_000
)

// family is policies that differ in one number, with two hedges each.
type family struct {
	name     string
	policies []policy.Policy
}

func families() []family {
	fixed := family{name: "fixed delays, 5 ms to 250 ms"}
	for _, ms := range []int{5, 8, 12, 20, 30, 50, 100, 250} {
		delay := time.Duration(ms) * time.Millisecond
		fixed.policies = append(fixed.policies,
			policy.Policy{Name: "static-" + delay.String(), Dial: policy.Static(delay, 2)})
	}
	percentiles := family{name: "percentiles, p70 to p98, no budget"}
	for _, q := range []float64{0.70, 0.75, 0.80, 0.85, 0.90, 0.95, 0.98} {
		percentiles.policies = append(percentiles.policies, policy.Policy{
			Name: "adaptive-" + figure.PercentileName(q),
			Dial: policy.Ours(hedge.WithTrigger(hedge.Percentile(q)), hedge.WithBudgetPercent(policy.Unbounded)),
		})
	}
	auto := family{name: "Auto, budgets of 2% to 40%"}
	for _, percent := range []float64{2, 3, 5, 7, 10, 12, 15, 20, 25, 30, 40} {
		auto.policies = append(auto.policies, policy.Policy{
			Name:   fmt.Sprintf("adaptive-%g%%", percent),
			Dial:   policy.Ours(hedge.WithBudgetPercent(percent)),
			Budget: percent,
		})
	}
	return []family{fixed, percentiles, auto}
}

// point is the outcome of one policy.
type point struct {
	policy    string
	extraLoad float64
	p99       time.Duration
}

// frontier is the outcome of each family in one workload, by extra load.
type frontier struct {
	workload string
	calls    int
	families []family
	points   [][]point // of each family
}

// findFrontier runs the workload under every policy of the families, in virtual time.
func findFrontier(ctx context.Context, w workload.Workload, calls int, seed int, log io.Writer) (*frontier, error) {
	c, err := comparisonOf(w, workload.VirtualClock, workload.Size{Calls: calls, Concurrency: 20}, seed)
	if err != nil {
		return nil, err
	}
	f := &frontier{workload: w.Name, calls: calls, families: families()}
	for _, family := range f.families {
		c.Policies = append(c.Policies, family.policies...)
	}
	p := progress.Start(log, "frontier of "+w.Name, int64(calls*len(c.Policies)))
	results, _, err := c.Run(ctx, p)
	p.End()
	if err != nil {
		return nil, err
	}
	var wrong []error
	for _, family := range f.families {
		var points []point
		for range family.policies {
			r := results[0]
			results = results[1:]
			points = append(points, point{r.Policy.Name, r.ExtraLoad(), r.Percentile(0.99)})
			wrong = append(wrong, r.Err())
		}
		slices.SortFunc(points, func(a, b point) int { return int(math.Copysign(1, a.extraLoad-b.extraLoad)) })
		f.points = append(f.points, points)
	}
	return f, errors.Join(wrong...)
}

// frontiers writes a table and a picture of the frontier of each workload that was asked for.
func (r *Report) frontiers(ctx context.Context, w, log io.Writer) error {
	calls := frontierCalls
	if r.Short {
		calls = shortFrontierCalls
	}
	figures := &table.Sheet{Labels: 2, Columns: table.Columns("workload", "workload", "policy", "policy",
		"extra load", "extra_load", "p99", "p99_ms")}
	var diagrams []picture.TradeOff
	for _, name := range frontierOf {
		if r.Workloads != nil && !slices.Contains(r.Workloads, name) {
			continue
		}
		f, err := findFrontier(ctx, workload.Named(name), calls, r.Seed, log)
		if err != nil {
			return fmt.Errorf("frontier of %s: %w", name, err)
		}
		diagrams = append(diagrams, f.diagram())
		for _, points := range f.points {
			figures.Line()
			for _, p := range points {
				figures.Add(table.Word(name), table.Word(p.policy), table.Share(p.extraLoad), table.Latency(p.p99))
			}
		}
	}
	if len(diagrams) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nThe frontier: p99 against extra load, %s calls each, in virtual time:\n\n",
		figure.Count(int64(calls)))
	figures.Print(w)
	return errors.Join(
		os.WriteFile(filepath.Join(r.Folder, "frontier.csv"), []byte(figures.CSV()), 0o644),
		picture.Write(filepath.Join(r.Folder, "frontier.png"), diagrams),
	)
}

func (f *frontier) diagram() picture.TradeOff {
	d := picture.TradeOff{Title: fmt.Sprintf("%s: what extra load buys, %s calls each, virtual time", f.workload,
		figure.Count(int64(f.calls)))}
	for i, points := range f.points {
		c := picture.TradeOffCurve{Label: f.families[i].name, Look: []int{2, 0, 1}[i]}
		for _, p := range points {
			c.Points = append(c.Points, picture.TradeOffPoint{ExtraLoad: p.extraLoad, P99: p.p99})
		}
		d.Curves = append(d.Curves, c)
	}
	return d
}
