// Package report runs workloads at the sizes asked for, and writes tables, pictures, an index and a
// summary.
package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/grpchedge/hedge/bench/workload"
)

// Report runs workloads under policies, and writes tables and pictures.
type Report struct {
	Workloads   []string
	Policies    []string
	Calls       int
	Concurrency int
	Seed        int
	Clocks      []string
	Folder      string
	Short       bool // a small part of all calls: the figures say little
}

// ClockNames are the names of clocks that a report can be asked for.
var ClockNames = []string{string(workload.RealClock), string(workload.VirtualClock), "both"}

// Check returns an error if a workload that was asked for does not run by the clock that was asked
// for.
func (r *Report) Check() error {
	_, err := r.studies()
	return err
}

// studies are the studies that were asked for.
func (r *Report) studies() ([]study, error) {
	names := r.Workloads
	if names == nil {
		names = workload.Names()
	}
	var studies []study
	for _, name := range names {
		w := workload.Named(name)
		if r.Short {
			w = w.Shorten()
		}
		s := study{workload: w, policies: r.Policies,
			size: workload.Size{Calls: r.Calls, Concurrency: r.Concurrency}, seed: r.Seed}
		for _, clock := range []workload.Clock{workload.RealClock, workload.VirtualClock} {
			if w.Runs(clock) && r.wants(clock) {
				s.clocks = append(s.clocks, clock)
			}
		}
		if len(s.clocks) == 0 {
			if r.Workloads == nil {
				continue
			}
			return nil, fmt.Errorf("the workload %s does not run with -clock %s", name, r.Clocks[0])
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

func (r *Report) wants(k workload.Clock) bool {
	return r.Clocks == nil || slices.Contains(r.Clocks, string(k)) || slices.Contains(r.Clocks, "both")
}

// Compare runs the workloads and writes the findings of each as soon as it has ended: the tables to
// w, progress to log, and everything to the folder. Failed calls and broken promises are in the
// error, after all workloads have run.
func (r *Report) Compare(ctx context.Context, w, log io.Writer) ([]*findings, error) {
	studies, err := r.studies()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.Folder, 0o755); err != nil {
		return nil, fmt.Errorf("-out %s: %w", r.Folder, err)
	}
	var all []*findings
	var wrong []error
	for _, s := range studies {
		f, err := s.run(ctx, log)
		if err != nil {
			return nil, err
		}
		f.print(w)
		if err := f.write(r.Folder); err != nil {
			return nil, fmt.Errorf("-out %s: %w", r.Folder, err)
		}
		wrong = append(wrong, f.err())
		all = append(all, f)
	}
	path, err := filepath.Abs(r.Folder)
	if err != nil {
		path = r.Folder
	}
	fmt.Fprintf(w, "Tables and pictures are in %s\n", path)
	return all, errors.Join(wrong...)
}
