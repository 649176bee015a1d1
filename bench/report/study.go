package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/progress"
	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/bench/table"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/testserver"
)

// study is one workload under several policies, by one clock or both.
type study struct {
	workload workload.Workload
	policies []string // nil: as in a full run
	clocks   []workload.Clock
	size     workload.Size // where 0: as in a full run
	seed     int
	title    string // of its progress
}

// findings is the outcome of a study.
type findings struct {
	workload workload.Workload
	seed     int
	runs     []clockRun
	agreed   []agreement
}

// clockRun is the outcome of a study by one clock.
type clockRun struct {
	clock   workload.Clock
	size    workload.Size
	results []*run.Result
	stalled run.Stalls
	took    time.Duration
}

// of returns the result of a policy; nil if it did not run.
func (r clockRun) of(name string) *run.Result {
	if i := slices.IndexFunc(r.results, func(r *run.Result) bool { return r.Policy.Name == name }); i >= 0 {
		return r.results[i]
	}
	return nil
}

// run makes the calls. Its error explains why the calls could not be made; findings.err holds
// failed calls.
func (s study) run(ctx context.Context, log io.Writer) (*findings, error) {
	f := &findings{workload: s.workload, seed: s.seed}
	for _, clock := range s.clocks {
		n := s.workload.Size(clock)
		if s.size.Calls > 0 {
			n.Calls = s.size.Calls
		}
		if s.size.Concurrency > 0 {
			n.Concurrency = s.size.Concurrency
		}
		c, err := comparisonOf(s.workload, clock, n, s.seed)
		if err != nil {
			return nil, err
		}
		names := s.policies
		if names == nil {
			names = s.workload.PoliciesBy(clock)
		}
		for _, name := range names {
			c.Policies = append(c.Policies, policy.Named(name))
		}
		p := progress.Start(log, s.title+s.workload.Name+", "+clock.Place(), int64(c.Calls*len(c.Policies)))
		began := time.Now()
		results, stalled, err := c.Run(ctx, p)
		p.End()
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", s.workload.Name, clock.Place(), err)
		}
		f.runs = append(f.runs, clockRun{clock, n, results, stalled, time.Since(began)})
	}
	f.agreed = agreements(f.runs)
	return f, nil
}

// comparisonOf is a run of a workload by a clock, without its policies.
func comparisonOf(w workload.Workload, clock workload.Clock, n workload.Size, seed int) (*run.Comparison, error) {
	distribution, err := testserver.ParseDistribution(w.Distribution)
	if err != nil {
		return nil, err
	}
	return &run.Comparison{
		Workload: w, Distribution: distribution, Calls: n.Calls, Concurrency: n.Concurrency,
		Backends: w.Servers(), Seed: uint64(seed), Clock: clock, AtOnce: w.AtOnce,
	}, nil
}

// err returns failed calls, wrong replies and broken budgets.
func (f *findings) err() error {
	var errs []error
	for _, found := range f.runs {
		for _, r := range found.results {
			if err := r.Err(); err != nil {
				errs = append(errs, fmt.Errorf("%s, %s, seed %d: %w", f.workload.Name, found.clock.Place(), f.seed, err))
			}
		}
	}
	return errors.Join(errs...)
}

// figures is the table of all policies, below published figures if these are asked for.
func (f *findings) figures(withPublished bool) *table.Sheet {
	s := &table.Sheet{Labels: 2, Columns: slices.Concat(
		table.Columns("policy", "policy", "measured", "measured"),
		table.PercentileColumns(),
		table.Columns("extra load", "extra_load", "hedges", "hedges", "won", "won", "cancelled", "cancelled",
			"wrong", "wrong", "failed", "failed", "calls", "calls", "seed", "seed"))}
	if rows := publishedFigures[f.workload.Name]; withPublished {
		for _, p := range rows {
			s.Add(p.cells(7)...)
		}
	}
	for _, found := range f.runs {
		if len(s.Rows) > 0 {
			s.Line()
		}
		for _, r := range found.results {
			s.Add(slices.Concat([]table.Cell{table.Word(r.Policy.Name), table.Word(found.clock.Place())},
				table.PercentileCells(r.Sorted), []table.Cell{
					table.Share(r.ExtraLoad()), table.Number(r.Server.Hedges), table.Number(r.Won), table.Number(r.Server.Cancelled),
					table.Number(r.Wrong), table.Number(r.Failed + r.MissedDeadline()), table.Number(
						int64(r.Calls)), table.Number(int64(f.seed)),
				})...)
		}
	}
	return s
}

// byPart is the table of the parts of the workload; nil if it has none.
func (f *findings) byPart() *table.Sheet {
	if len(f.workload.Parts) == 0 {
		return nil
	}
	if f.workload.Fleet != nil {
		return f.bySteps()
	}
	s := &table.Sheet{Labels: 3,
		Columns: append(table.Columns("calls", "part", "policy", "policy", "measured", "measured"),
			table.PercentileColumns()...)}
	for i, p := range f.workload.Parts {
		if i > 0 {
			s.Line()
		}
		for _, found := range f.runs {
			for _, r := range found.results {
				if sorted := r.Of(p); len(sorted) > 0 {
					s.Add(append([]table.Cell{table.Word(p.Name), table.Word(r.Policy.Name),
						table.Word(found.clock.Place())}, table.PercentileCells(sorted)...)...)
				}
			}
		}
	}
	return s
}

// print writes the tables for a terminal.
func (f *findings) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s.\n", f.workload.Name, f.workload.About)
	for _, found := range f.runs {
		fmt.Fprintf(w, "%s\n", found.describe(f.workload, f.seed))
	}
	fmt.Fprintln(w)
	f.figures(true).Print(w)
	if parts := f.byPart(); parts != nil {
		fmt.Fprintln(w)
		parts.Print(w)
		if f.workload.Fleet != nil {
			fmt.Fprintf(w, "\n%s\n", f.aboutSteps())
		}
	}
	if agreed := agreementSheet(f.agreed); agreed != nil {
		fmt.Fprintf(w, "\n%s\n\n", agreementText)
		agreed.Print(w)
	}
	fmt.Fprintln(w)
}

// describe describes how the run was made.
func (r clockRun) describe(w workload.Workload, seed int) string {
	what := figure.Count(int64(r.size.Calls)) + " calls"
	if w.Fan > 0 {
		what = fmt.Sprintf("%s requests of %d calls each", figure.Count(int64(r.size.Calls)), w.Fan)
	}
	pace := fmt.Sprintf("%d at a time", r.size.Concurrency)
	if w.Arrivals != nil {
		pace = "arriving by the clock"
	}
	if f := w.Fleet; f != nil {
		pace += fmt.Sprintf(" from %s clients at %d servers, each with a deadline of %v",
			figure.Count(int64(f.Clients)), w.Servers(), f.Deadline)
	}
	s := fmt.Sprintf("In %s: %s under each policy, %s, seed %d; it took %v.", r.clock.Place(), what, pace, seed,
		r.took.Round(100*time.Millisecond))
	if r.clock == workload.RealClock {
		s = fmt.Sprintf("Over loopback sockets: %s under each policy, %s, seed %d; it took %v.", what, pace,
			seed, r.took.Round(100*time.Millisecond))
		if r.stalled.Share() > run.StallsThatShow {
			s += fmt.Sprintf(" The machine, busy with other work, stalled for %s of it, which is part of "+
				"these tails.", figure.Percent(r.stalled.Share()))
		}
	}
	return s
}
