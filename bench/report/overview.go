package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/picture"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/progress"
	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/bench/table"
	"github.com/grpchedge/hedge/bench/workload"
)

const overviewText = `All workloads in virtual time: p99 as a share of plain gRPC's p99, and the attempts added per 100
calls. The best fixed delay is chosen after the run, out of six with two hedges that add at most
10%. The peer, failsafe-go, hedges no streams.`

// fixedFrom are the quantiles of plain latency that are tried as fixed delays. With two hedges each
// adds less than 10%.
var fixedFrom = []float64{0.91, 0.92, 0.935, 0.95, 0.97, 0.985}

// mostFixed is how many attempts a fixed delay may add, as a share of the calls: the budget of this
// library by default.
const mostFixed = 0.10

// overviewStep is the step of the load for which the overview shows a fleet; the last one where
// there is no such step.
const overviewStep = "80%"

// rival is a kind of policy in the overview. Its looks are picture's.
type rival struct {
	label string
	look  int
}

var rivals = []rival{{"this library, nothing configured", 1}, {"the best fixed delay, chosen afterwards", 2},
	{"failsafe-go", 0}}

// standing is a policy's result in a workload; zero if the policy did not run.
type standing struct {
	p99       time.Duration
	extraLoad float64
}

// place is a workload's row in the overview.
type place struct {
	workload  string
	plain     time.Duration
	delay     time.Duration // the fixed one
	standings []standing    // of each rival
}

// overview compares the rivals in each workload that has plain calls in virtual time.
func (r *Report) overview(ctx context.Context, all []*findings, log io.Writer) ([]place, error) {
	var places []place
	for _, f := range all {
		found := f.runs[len(f.runs)-1]
		plain := found.of(policy.None)
		if found.clock != workload.VirtualClock || plain == nil || f.workload.Second {
			continue
		}
		best, err := r.bestFixed(ctx, f, found, plain, log)
		if err != nil {
			return nil, err
		}
		p := place{workload: f.shownAs(), plain: f.standing(plain).p99, delay: best.delay,
			standings: []standing{f.standing(found.of(policy.Adaptive)), best.standing, f.standing(found.of(policy.Peer))}}
		places = append(places, p)
	}
	return places, nil
}

// fixed is the result of a fixed delay.
type fixed struct {
	standing
	delay time.Duration
}

// bestFixed makes the calls of a run again under fixed delays, and returns the one with the least
// p99 that kept to mostFixed.
func (r *Report) bestFixed(ctx context.Context, f *findings, found clockRun, plain *run.Result,
	log io.Writer) (fixed, error) {
	c, err := comparisonOf(f.workload, found.clock, found.size, f.seed)
	if err != nil {
		return fixed{}, err
	}
	quantiles := fixedFrom
	if r.Short {
		quantiles = quantiles[3:4]
	}
	sorted, _ := f.shown(plain)
	if len(sorted) == 0 {
		return fixed{}, nil
	}
	var delays []time.Duration
	for _, q := range quantiles {
		delay := figure.Quantile(sorted, q)
		if f.workload.Fan > 0 { // plain has requests, each as slow as its slowest call
			delay = f.workload.TrueQuantile(q, 0, 0)
		}
		delays = append(delays, max(delay.Round(10*time.Microsecond), time.Millisecond))
	}
	delays = slices.Compact(delays)
	for _, delay := range delays {
		c.Policies = append(c.Policies, policy.Policy{Name: "static-" + delay.String(),
			Dial: policy.Static(delay, 2), Transport: policy.StaticHTTP(delay, 2)})
	}
	p := progress.Start(log, "fixed delays, "+f.workload.Name, int64(c.Calls*len(delays)))
	results, _, err := c.Run(ctx, p)
	p.End()
	if err != nil {
		return fixed{}, fmt.Errorf("%s, fixed delays: %w", f.workload.Name, err)
	}
	var best fixed
	var wrong []error
	for i, result := range results {
		wrong = append(wrong, result.Err())
		if s := f.standing(result); s.extraLoad <= mostFixed && (best.p99 == 0 || s.p99 < best.p99) {
			best = fixed{s, delays[i]}
		}
	}
	return best, errors.Join(wrong...)
}

// step is the index of the step that stands for a fleet.
func (f *findings) step() int {
	steps := f.workload.Fleet.Steps
	if i := slices.IndexFunc(steps, func(s workload.Step) bool { return s.Name == overviewStep }); i >= 0 {
		return i
	}
	return len(steps) - 1
}

// shownAs is the name of the workload, and of the step of a fleet.
func (f *findings) shownAs() string {
	if fleet := f.workload.Fleet; fleet != nil {
		return f.workload.Name + ", " + fleet.Steps[f.step()].Name
	}
	return f.workload.Name
}

// shown are the calls of a result that the overview shows, sorted, and the extra load of their
// time.
func (f *findings) shown(r *run.Result) (sorted []time.Duration, extraLoad float64) {
	if f.workload.Fleet == nil {
		return r.Sorted, r.ExtraLoad()
	}
	s := r.Steps(f.workload)[f.step()]
	return s.Sorted, s.ExtraLoad()
}

// standing returns the overview's view of a result; zero for a nil result.
func (f *findings) standing(r *run.Result) standing {
	if r == nil {
		return standing{}
	}
	sorted, extraLoad := f.shown(r)
	if len(sorted) == 0 {
		return standing{}
	}
	return standing{figure.Quantile(sorted, 0.99), extraLoad}
}

// overviewSheet is the table of the overview.
func overviewSheet(places []place) *table.Sheet {
	s := &table.Sheet{Labels: 1, Columns: table.Columns("workload", "workload", "plain p99", "plain_ms", "ours",
		"ours_ratio", "load", "our_load",
		"best fixed delay", "fixed_delay_ms", "its p99", "fixed_ratio", "load", "fixed_load", "failsafe-go",
		"peer_ratio", "load", "peer_load")}
	for _, p := range places {
		cells := []table.Cell{table.Word(p.workload), table.Latency(p.plain)}
		for i, at := range p.standings {
			ratio, load := table.Word("–"), table.Word("–")
			if at.p99 > 0 {
				ratio, load = table.Factor(float64(at.p99)/float64(p.plain)), table.Share(at.extraLoad)
			}
			if i == 1 {
				delay := table.Word("–")
				if at.p99 > 0 {
					delay = table.Latency(p.delay)
				}
				cells = append(cells, delay)
			}
			cells = append(cells, ratio, load)
		}
		s.Add(cells...)
	}
	return s
}

// writeOverview writes the table and the picture of the overview into the folder.
func (r *Report) writeOverview(places []place) error {
	d := picture.Standings{Title: "p99 in virtual time, as a share of plain gRPC's",
		Value: "p99 / plain p99 (log scale)", Load: "extra load (% of calls)"}
	for i, rival := range rivals {
		d.Rivals = append(d.Rivals, picture.Rival{Label: rival.label, Look: rival.look})
		for row, p := range places {
			if at := p.standings[i]; at.p99 > 0 {
				d.Rivals[i].Marks = append(d.Rivals[i].Marks,
					picture.Mark{Row: row, Ratio: float64(at.p99) / float64(cmp.Or(p.plain, 1)), ExtraLoad: at.extraLoad})
			}
		}
	}
	for _, p := range places {
		d.Rows = append(d.Rows, p.workload)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(r.Folder, "overview.csv"), []byte(overviewSheet(places).CSV()), 0o644),
		picture.Write(filepath.Join(r.Folder, "overview.png"), []picture.Standings{d}),
	)
}
