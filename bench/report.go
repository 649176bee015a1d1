package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"
)

// report is every workload at full size, and a page about all of them.
type report struct {
	compare
	short bool
}

func reportCommand(out output) *ffcli.Command {
	var r report
	fs := flag.NewFlagSet("report", flag.ContinueOnError)
	r.flags(fs, "results")
	fs.BoolVar(&r.short, "short", false, "a small part of all calls, to see that everything works: the figures say little")
	return &ffcli.Command{
		Name:       "report",
		ShortUsage: "bench report [flags]",
		ShortHelp:  "all workloads at full size by the right clocks, where each policy is weak, and an index of it all",
		FlagSet:    fs,
		Exec: func(ctx context.Context, args []string) error {
			if err := noArguments(args); err != nil {
				return err
			}
			return r.run(ctx, out)
		},
	}
}

// What a short run makes of a workload's calls: so many, or so many requests of a hundred calls.
const (
	shortVirtual = 5_000
	shortReal    = 1_000
	shortFan     = 200
)

// shorten cuts the sizes of the workload down.
func (w workload) shorten() workload {
	most := shortVirtual
	if w.fan > 0 {
		most = shortFan
	}
	w.virtual.calls = min(w.virtual.calls, most)
	w.real.calls = min(w.real.calls, shortReal)
	return w
}

func (r *report) run(ctx context.Context, out output) error {
	began := time.Now()
	fmt.Fprintf(out.results, "%s\n\n", machine())
	all, err := r.compare.run(ctx, out, r.short)
	if all == nil {
		return err
	}
	err = errors.Join(err, r.frontiers(ctx, out))
	weak := weakSpots(all)
	fmt.Fprintf(out.results, "\n%s\n\n", weakText)
	weak.print(out.results)
	fmt.Fprintf(out.results, "\nWhere another policy is better than %s, by 2%% or more:\n\n", adaptive)
	betterThan(adaptive, all).print(out.results)
	took := time.Since(began).Round(time.Second)
	fmt.Fprintf(out.results, "\nThe whole report took %v.\n", took)
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

// machine says what this runs on.
func machine() string {
	cpu := "an unnamed processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				cpu = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
				break
			}
		}
	}
	return fmt.Sprintf("Measured on %s/%s, %s, %d cores, %s; client and servers share them.", runtime.GOOS, runtime.GOARCH, cpu, runtime.GOMAXPROCS(0), runtime.Version())
}
