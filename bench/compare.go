package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/peterbourgon/ff/v3/ffcli"
)

// compare runs workloads under policies, and writes tables and pictures.
type compare struct {
	workloads   []string
	policies    []string
	calls       int
	concurrency int
	seed        int
	clock       []string
	folder      string
}

// clockNames are what -clock takes.
var clockNames = []string{string(realClock), string(virtualClock), "both"}

func (c *compare) flags(fs *flag.FlagSet, folder string) {
	namesFlag(fs, &c.workloads, "workload", workloadNames(), "`names` with commas between of the workloads to run (default all)")
	namesFlag(fs, &c.policies, "policy", policyNames(), "`names` with commas between of the policies to compare (default for each workload those that tell something there)")
	wholeFlag(fs, &c.calls, "calls", 0, 0, maxCalls, "`number` of calls under each policy; 0 for the size of each workload")
	wholeFlag(fs, &c.concurrency, "concurrency", 0, 0, maxConcurrency, "`number` of calls under way at a time; 0 for what each workload has")
	wholeFlag(fs, &c.seed, "seed", 1, 0, 1<<31-1, "`number` from which all latencies and arrivals are drawn")
	namesFlag(fs, &c.clock, "clock", clockNames, "which `clock` to go by (default both, where a workload has both)")
	folderFlag(fs, &c.folder, "out", folder, "`folder` for the tables, as CSV and Markdown, and the pictures")
}

func compareCommand(out output) *ffcli.Command {
	var c compare
	fs := flag.NewFlagSet("compare", flag.ContinueOnError)
	c.flags(fs, "results")
	return &ffcli.Command{
		Name:       "compare",
		ShortUsage: "bench compare [flags]",
		ShortHelp:  "workloads under policies, ours, fixed ones and a peer's: tables and pictures",
		FlagSet:    fs,
		Exec: func(ctx context.Context, args []string) error {
			if err := noArguments(args); err != nil {
				return err
			}
			_, err := c.run(ctx, out, false)
			return err
		},
	}
}

// studies are what the flags ask for.
func (c *compare) studies(short bool) ([]study, error) {
	names := c.workloads
	if names == nil {
		names = workloadNames()
	}
	var studies []study
	for _, name := range names {
		w := workloadNamed(name)
		if short {
			w = w.shorten()
		}
		s := study{workload: w, policies: c.policies, size: size{c.calls, c.concurrency}, seed: c.seed}
		for _, clock := range []clock{realClock, virtualClock} {
			if w.runs(clock) && c.wants(clock) {
				s.clocks = append(s.clocks, clock)
			}
		}
		if len(s.clocks) == 0 {
			if c.workloads == nil {
				continue
			}
			return nil, misuse{fmt.Errorf("the workload %s does not run with -clock %s", name, c.clock[0])}
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

func (c *compare) wants(k clock) bool {
	return c.clock == nil || slices.Contains(c.clock, string(k)) || slices.Contains(c.clock, "both")
}

// run runs the studies and writes what each found as soon as it is known. It returns what went wrong with calls
// only after all are done.
func (c *compare) run(ctx context.Context, out output, short bool) ([]*findings, error) {
	studies, err := c.studies(short)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.folder, 0o755); err != nil {
		return nil, fmt.Errorf("-out %s: %w", c.folder, err)
	}
	var all []*findings
	var wrong []error
	for _, s := range studies {
		f, err := s.run(ctx, out)
		if err != nil {
			return nil, err
		}
		f.print(out.results)
		if err := f.write(c.folder); err != nil {
			return nil, fmt.Errorf("-out %s: %w", c.folder, err)
		}
		wrong = append(wrong, f.err())
		all = append(all, f)
	}
	path, err := filepath.Abs(c.folder)
	if err != nil {
		path = c.folder
	}
	fmt.Fprintf(out.results, "Tables and pictures are in %s\n", path)
	return all, errors.Join(wrong...)
}
