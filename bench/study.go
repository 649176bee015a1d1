package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
)

// study is one workload under several policies, by one clock or both.
type study struct {
	workload workload
	policies []string // nil: those of a full run
	clocks   []clock
	size     size // where 0: that of a full run
	seed     int
	title    string // of its progress
}

// findings is what a study found.
type findings struct {
	workload workload
	seed     int
	runs     []clockRun
	agreed   []agreement
}

// clockRun is what was found by one clock.
type clockRun struct {
	clock   clock
	size    size
	results []*result
	stalled stalls
	took    time.Duration
}

// run makes the calls. It fails if it could not, not if they did.
func (s study) run(ctx context.Context, log io.Writer) (*findings, error) {
	w := s.workload
	law, err := testserver.ParseLaw(w.law)
	if err != nil {
		return nil, err
	}
	f := &findings{workload: w, seed: s.seed}
	for _, clock := range s.clocks {
		n := w.size(clock)
		if s.size.calls > 0 {
			n.calls = s.size.calls
		}
		if s.size.concurrency > 0 {
			n.concurrency = s.size.concurrency
		}
		c := &comparison{
			workload: w, law: law, calls: n.calls, concurrency: n.concurrency,
			backends: w.servers(), seed: uint64(s.seed), clock: clock,
			atOnce: w.atOnce,
		}
		names := s.policies
		if names == nil {
			names = w.policiesBy(clock)
		}
		for _, name := range names {
			c.policies = append(c.policies, policyNamed(name))
		}
		p := startProgress(log, s.title+w.name+", "+clock.place(), int64(c.calls*len(c.policies)))
		began := time.Now()
		results, stalled, err := c.run(ctx, p)
		p.end()
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", w.name, clock.place(), err)
		}
		f.runs = append(f.runs, clockRun{clock, n, results, stalled, time.Since(began)})
	}
	f.agreed = agreements(f.runs)
	return f, nil
}

// err says what calls failed, replies were wrong and budgets were broken.
func (f *findings) err() error {
	var errs []error
	for _, run := range f.runs {
		for _, r := range run.results {
			if err := r.err(); err != nil {
				errs = append(errs, fmt.Errorf("%s, %s, seed %d: %w", f.workload.name, run.clock.place(), f.seed, err))
			}
		}
	}
	return errors.Join(errs...)
}

// figures is the table of all policies, with what others published above it.
func (f *findings) figures(withPublished bool) *sheet {
	s := &sheet{labels: 2, columns: slices.Concat(
		[]column{{"policy", "policy"}, {"measured", "measured"}},
		percentileColumns(),
		[]column{
			{"extra load", "extra_load"}, {"hedges", "hedges"}, {"won", "won"}, {"cancelled", "cancelled"},
			{"wrong", "wrong"}, {"failed", "failed"}, {"calls", "calls"}, {"seed", "seed"},
		})}
	if rows := publishedFigures[f.workload.name]; withPublished {
		for _, p := range rows {
			s.add(p.cells(7)...)
		}
	}
	for _, run := range f.runs {
		if len(s.rows) > 0 {
			s.line()
		}
		for _, r := range run.results {
			s.add(slices.Concat([]cell{word(r.policy.name), word(run.clock.place())}, percentileCells(r.sorted), []cell{
				share(r.extraLoad()), number(r.server.Hedges), number(r.won), number(r.server.Cancelled),
				number(r.wrong), number(r.failed), number(int64(r.calls)), number(int64(f.seed)),
			})...)
		}
	}
	return s
}

// byPart is the table of the parts of the calls; nil if the workload has none.
func (f *findings) byPart() *sheet {
	if len(f.workload.parts) == 0 {
		return nil
	}
	s := &sheet{labels: 3, columns: append([]column{{"calls", "part"}, {"policy", "policy"}, {"measured", "measured"}}, percentileColumns()...)}
	for i, p := range f.workload.parts {
		if i > 0 {
			s.line()
		}
		for _, run := range f.runs {
			for _, r := range run.results {
				if sorted := r.of(p); len(sorted) > 0 {
					s.add(append([]cell{word(p.name), word(r.policy.name), word(run.clock.place())}, percentileCells(sorted)...)...)
				}
			}
		}
	}
	return s
}

// print writes the tables on the terminal.
func (f *findings) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s.\n", f.workload.name, f.workload.about)
	for _, run := range f.runs {
		fmt.Fprintf(w, "%s\n", run.describe(f.workload, f.seed))
	}
	fmt.Fprintln(w)
	f.figures(true).print(w)
	if parts := f.byPart(); parts != nil {
		fmt.Fprintln(w)
		parts.print(w)
	}
	if agreed := agreementSheet(f.agreed); agreed != nil {
		fmt.Fprintf(w, "\n%s\n\n", agreementText)
		agreed.print(w)
	}
	fmt.Fprintln(w)
}

// describe says how a run was made.
func (r clockRun) describe(w workload, seed int) string {
	what := count(int64(r.size.calls)) + " calls"
	if w.fan > 0 {
		what = fmt.Sprintf("%s requests of %d calls each", count(int64(r.size.calls)), w.fan)
	}
	pace := fmt.Sprintf("%d at a time", r.size.concurrency)
	if w.arrivals != nil {
		pace = "arriving by the clock"
	}
	s := fmt.Sprintf("In %s: %s under each policy, %s, seed %d; it took %v.", r.clock.place(), what, pace, seed, r.took.Round(100*time.Millisecond))
	if r.clock == realClock {
		s = fmt.Sprintf("Over loopback sockets: %s under each policy, %s, seed %d; it took %v.", what, pace, seed, r.took.Round(100*time.Millisecond))
		if r.stalled.share() > stallsThatShow {
			s += fmt.Sprintf(" The machine, busy with other work, stood still for %s of it, which is part of these tails.", percent(r.stalled.share()))
		}
	}
	return s
}
