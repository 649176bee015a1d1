package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// report runs workloads under policies, and writes tables and pictures.
type report struct {
	workloads   []string
	policies    []string
	calls       int
	concurrency int
	seed        int
	clocks      []string
	folder      string
	short       bool // a small part of all calls: the figures say little
}

// clockNames are what -clock takes.
var clockNames = []string{string(realClock), string(virtualClock), "both"}

// check says which workload that was asked for does not run by the clock that was asked for, if there is one.
func (r *report) check() error {
	_, err := r.studies()
	return err
}

// studies are what the flags ask for.
func (r *report) studies() ([]study, error) {
	names := r.workloads
	if names == nil {
		names = workloadNames()
	}
	var studies []study
	for _, name := range names {
		w := workloadNamed(name)
		if r.short {
			w = w.shorten()
		}
		s := study{workload: w, policies: r.policies, size: size{r.calls, r.concurrency}, seed: r.seed}
		for _, clock := range []clock{realClock, virtualClock} {
			if w.runs(clock) && r.wants(clock) {
				s.clocks = append(s.clocks, clock)
			}
		}
		if len(s.clocks) == 0 {
			if r.workloads == nil {
				continue
			}
			return nil, fmt.Errorf("the workload %s does not run with -clock %s", name, r.clocks[0])
		}
		studies = append(studies, s)
	}
	for i := range studies {
		if len(studies) > 1 {
			studies[i].title = fmt.Sprintf("%d of %d: ", i+1, len(studies))
		}
	}
	return studies, nil
}

func (r *report) wants(k clock) bool {
	return r.clocks == nil || slices.Contains(r.clocks, string(k)) || slices.Contains(r.clocks, "both")
}

// compare runs the studies and writes what each found as soon as it is known. It returns what went wrong with calls
// only after all are done.
func (r *report) compare(ctx context.Context, w, log io.Writer) ([]*findings, error) {
	studies, err := r.studies()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.folder, 0o755); err != nil {
		return nil, fmt.Errorf("-out %s: %w", r.folder, err)
	}
	var all []*findings
	var wrong []error
	for _, s := range studies {
		f, err := s.run(ctx, log)
		if err != nil {
			return nil, err
		}
		f.print(w)
		if err := f.write(r.folder); err != nil {
			return nil, fmt.Errorf("-out %s: %w", r.folder, err)
		}
		wrong = append(wrong, f.err())
		all = append(all, f)
	}
	path, err := filepath.Abs(r.folder)
	if err != nil {
		path = r.folder
	}
	fmt.Fprintf(w, "Tables and pictures are in %s\n", path)
	return all, errors.Join(wrong...)
}
