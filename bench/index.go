package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// full runs every workload that is asked for, and writes an index and a summary of all of it.
func (r *report) full(ctx context.Context, w, log io.Writer) error {
	began := time.Now()
	fmt.Fprintf(w, "%s\n\n", machine())
	all, err := r.compare(ctx, w, log)
	if all == nil {
		return err
	}
	err = errors.Join(err, r.frontiers(ctx, w, log))
	weak := weakSpots(all)
	fmt.Fprintf(w, "\n%s\n\n", weakText)
	weak.print(w)
	fmt.Fprintf(w, "\nWhere another policy is better than %s, by 2%% or more:\n\n", adaptive)
	betterThan(adaptive, all).print(w)
	took := time.Since(began).Round(time.Second)
	fmt.Fprintf(w, "\nThe whole report took %v.\n", took)
	return errors.Join(err, r.writeIndex(all, weak, took), r.writeSummary(all, weak, took))
}

const frontierText = `What extra load buys: p99 against it for fixed delays, for percentiles and for the trigger that chooses, two hedges
each. Lower and further left is better.`

const weakText = `Weak spots: the workloads on which a policy is slower than none, by the percentile that compares worst, or costs
load and makes nothing faster. Both have the same draws; differences below 2% are left out.`

// writeIndex writes the page that leads to all others.
func (r *report) writeIndex(all []*findings, weak *sheet, took time.Duration) error {
	var s strings.Builder
	fmt.Fprintf(&s, "# Results\n\n%s Everything took %v.\n\n", machine(), took)
	if r.short {
		s.WriteString("This was a short run, which shows that everything works; its figures say little.\n\n")
	}
	s.WriteString("| workload | what it is | run alone by |\n|---|---|---|\n")
	for _, f := range all {
		fmt.Fprintf(&s, "| [%[1]s](%[1]s.md) | %[2]s | `make bench BENCH_FLAGS=\"-workload %[1]s\"` |\n", f.workload.name, f.workload.about)
	}
	s.WriteString("\n## The frontier\n\n" + frontierText + "\n\n![p99 against extra load](frontier.png)\n")
	fmt.Fprintf(&s, "\n## Weak spots\n\n%s\n\n%s\n## Policies\n\n| policy | what it is |\n|---|---|\n", weakText, weak.markdown())
	for _, p := range policies {
		if !p.part {
			fmt.Fprintf(&s, "| %s | %s |\n", p.name, p.about)
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(r.folder, "README.md"), []byte(s.String()), 0o644),
		os.WriteFile(filepath.Join(r.folder, "weak-spots.csv"), []byte(weak.csv()), 0o644),
	)
}
