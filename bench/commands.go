package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/bench/busy"
	"github.com/grpchedge/hedge/bench/cost"
	"github.com/grpchedge/hedge/bench/demo"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/report"
	"github.com/grpchedge/hedge/bench/tail"
	"github.com/grpchedge/hedge/bench/workload"
)

// command returns a subcommand that takes flags and no arguments.
func command(name, help string, flags func(*flag.FlagSet), run func(ctx context.Context) error) *ffcli.Command {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	flags(fs)
	return &ffcli.Command{
		Name:       name,
		ShortUsage: "bench " + name + " [flags]",
		ShortHelp:  help,
		FlagSet:    fs,
		Exec: func(ctx context.Context, args []string) error {
			if len(args) > 0 {
				return misuse{fmt.Errorf("unexpected argument %q", args[0])}
			}
			return run(ctx)
		},
	}
}

// commands returns the subcommands. They write results to w and progress to log.
func commands(w, log io.Writer) []*ffcli.Command {
	return []*ffcli.Command{demoCommand(w, log), compareCommand(w, log), reportCommand(w, log),
		tailCommand(w, log), costCommand(w, log), busyCommand(w, log)}
}

func demoCommand(w, log io.Writer) *ffcli.Command {
	var d demo.Demo
	flags := func(fs *flag.FlagSet) {
		wholeFlag(fs, &d.Calls, "calls", 40_000, 1, maxCalls,
			"`number` of unary calls, made once without and once with hedging")
		wholeFlag(fs, &d.Streams, "streams", 3_000, 0, maxCalls, "`number` of token streams, likewise; 0 for none")
		wholeFlag(fs, &d.Concurrency, "concurrency", 20, 1, maxConcurrency,
			"`number` of calls or streams in flight")
		wholeFlag(fs, &d.Backends, "backends", 3, 1, maxBackends, "`number` of servers behind the target")
		wholeFlag(fs, &d.Seed, "seed", 1, 0, 1<<31-1, "`number` from which all latencies are drawn")
		distributionFlag(fs, &d.Distribution, "distribution", workload.Named("straggler").Distribution)
		optionFlag(fs, &d.Options, "budget",
			"maximum of hedges per 100 calls, 0 to 400, in `percent` (default the library's, 10, for calls; 30 for "+
				"streams)", parseFloat, hedge.WithBudgetPercent)
		optionFlag(fs, &d.Options, "hedges",
			"maximum of hedges per call, 0 to 4, a `number` (default the library's, 2, for calls; 3 for streams)",
			parseInt, hedge.WithMaxHedges)
		pictureFlag(fs, &d.Picture, "picture", "./hedge-demo.png")
		fs.StringVar(&d.Debug, "debug", "127.0.0.1:0",
			"`address` of the debug page while the demo runs; empty for none")
	}
	return command("demo", "the same calls without and with hedging: a table and a picture", flags,
		func(ctx context.Context) error {
			return d.Run(ctx, w, log)
		})
}

// reportFlags sets the flags that compare and report share.
func reportFlags(fs *flag.FlagSet, r *report.Report) {
	namesFlag(fs, &r.Workloads, "workload", workload.Names(),
		"`names` with commas between of the workloads to run (default all)")
	namesFlag(fs, &r.Policies, "policy", policy.Names(),
		"`names` with commas between of the policies to compare (default: the policies of each workload)")
	wholeFlag(fs, &r.Calls, "calls", 0, 0, maxCalls,
		"`number` of calls under each policy; 0 for the size of each workload")
	wholeFlag(fs, &r.Concurrency, "concurrency", 0, 0, maxConcurrency,
		"`number` of calls in flight; 0 for the number of each workload")
	wholeFlag(fs, &r.Seed, "seed", 1, 0, 1<<31-1, "`number` from which all latencies and arrivals are drawn")
	namesFlag(fs, &r.Clocks, "clock", report.ClockNames,
		"which `clock` to go by (default both, where a workload has both)")
	folderFlag(fs, &r.Folder, "out", "results", "`folder` for the tables, as CSV and Markdown, and the pictures")
}

func compareCommand(w, log io.Writer) *ffcli.Command {
	var r report.Report
	flags := func(fs *flag.FlagSet) { reportFlags(fs, &r) }
	return command("compare", "workloads under policies, ours, fixed ones and a peer's: tables and pictures",
		flags, func(ctx context.Context) error {
			if err := r.Check(); err != nil {
				return misuse{err}
			}
			_, err := r.Compare(ctx, w, log)
			return err
		})
}

func reportCommand(w, log io.Writer) *ffcli.Command {
	var r report.Report
	flags := func(fs *flag.FlagSet) {
		reportFlags(fs, &r)
		fs.BoolVar(&r.Short, "short", false,
			"a small part of all calls, to see that everything works: the figures mean little")
	}
	return command("report",
		"all workloads at full size by the right clocks, where each policy is weak, and an index of it all",
		flags, func(ctx context.Context) error {
			if err := r.Check(); err != nil {
				return misuse{err}
			}
			return r.Full(ctx, w, log)
		})
}

func tailCommand(w, log io.Writer) *ffcli.Command {
	var t tail.Tail
	flags := func(fs *flag.FlagSet) {
		wholeFlag(fs, &t.Calls, "calls", 20_000, 1, maxCalls,
			"`number` of calls, made once without and once with hedging at each concurrency")
		wholesFlag(fs, &t.Concurrency, "concurrency", []int{1, 20, 100}, 1, maxConcurrency,
			"`numbers` of calls in flight, with commas between")
		wholeFlag(fs, &t.Seed, "seed", 1, 0, 1<<31-1, "`number` from which all latencies are drawn")
		wholeFlag(fs, &t.Slowest, "slowest", 0, 0, maxCalls,
			"`number` of the slowest hedged calls to list, with the server's records of their attempts")
	}
	return command("tail",
		"p99, p99.9 and extra load of the straggler workload, nothing configured: pass or fail", flags, func(
			ctx context.Context) error {
			return t.Run(ctx, w, log)
		})
}

// How long cost runs.
const (
	costDuration      = 2 * time.Minute
	shortCostDuration = 40 * time.Second
)

func costCommand(w, log io.Writer) *ffcli.Command {
	var c cost.Cost
	var client cost.Counted
	var short, serve, count bool
	flags := func(fs *flag.FlagSet) {
		namesFlag(fs, &c.Kinds, "kind", cost.KindNames, "`kinds` of calls to make, with a comma between (default all)")
		wholesFlag(fs, &c.Concurrency, "concurrency", []int{1, 16, 256}, 1, maxConcurrency,
			"`numbers` of calls in flight, with commas between")
		durationFlag(fs, &c.Duration, "duration", costDuration, time.Second, time.Hour,
			"`time` of the whole run, without the warm-up")
		durationFlag(fs, &c.Warmup, "warmup", 10*time.Second, time.Millisecond, time.Hour,
			"`time` for which this library serves each kind of calls before it is measured")
		durationFlag(fs, &c.Slice, "slice", 50*time.Millisecond, time.Millisecond, time.Minute,
			"`time` for which a contestant calls before the next one takes its turn")
		wholeFlag(fs, &c.Seed, "seed", 1, 0, 1<<31-1, "`number` from which the order of turns is drawn")
		fs.BoolVar(&c.All, "all", false, "also this library with no hedge ever due and with a dry run, and failsafe-go")
		fs.BoolVar(&short, "short", false, fmt.Sprintf("the same as -duration %v", shortCostDuration))
		fs.StringVar(&c.Profile, "cpuprofile", "",
			"`path` of a profile of the processor time, with a label for each client; empty for none")
		fs.BoolVar(&serve, "serve", false, "only run the server, until standard input ends; cost starts it so")
		fs.BoolVar(&count, "count", false, "count the instructions of unary calls and streams under Valgrind, instead of "+
			"the processor time")
		wholeFlag(fs, &client.Calls, "calls", 4000, 0, maxCalls, "with -count: `number` of calls that are counted")
		fs.StringVar(&client.Target, "to", "", "with -client: the `target` to call")
		fs.StringVar(&client.Label, "client", "", "only make the calls that are counted, as the `client` of this name; "+
			"-count starts it so")
	}
	return command("cost", "processor time of calls that need no hedge, as a ratio to plain ones", flags,
		func(ctx context.Context) error {
			if serve {
				return cost.Serve(os.Stdin, w)
			}
			if short {
				c.Duration = shortCostDuration
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			c.Server = []string{self, "cost", "-serve"}
			switch {
			case client.Label != "" && len(c.Kinds) == 1 && len(c.Concurrency) == 1:
				client.Kind, client.Concurrency = c.Kinds[0], c.Concurrency[0]
				return client.Run(ctx, w)
			case count:
				return (&cost.Count{Server: c.Server, Client: []string{self, "cost"}, Kinds: c.Kinds,
					Concurrency: c.Concurrency, Calls: client.Calls}).Run(ctx, w, log)
			}
			return c.Run(ctx, w, log)
		})
}

func busyCommand(w, log io.Writer) *ffcli.Command {
	b := busy.Busy{Budget: 10}
	var serve, sleep bool
	var client string
	flags := func(fs *flag.FlagSet) {
		wholeFlag(fs, &b.Servers, "servers", 2, 1, 16, "`number` of server processes")
		wholesFlag(fs, &b.Loads, "loads", []int{50, 80, 95}, 1, 200,
			"`loads` in percent of the measured capacity, with commas between")
		durationFlag(fs, &b.Handler, "handler", 2*time.Millisecond, 0, time.Second,
			"mean `time` for which a handler keeps its processor")
		durationFlag(fs, &b.Own, "own", time.Millisecond, 0, time.Second,
			"mean `time` for which the busy client keeps its processor after each call")
		durationFlag(fs, &b.Duration, "duration", time.Minute, time.Second, time.Hour,
			"`time` for which each load is measured")
		wholeFlag(fs, &b.Seed, "seed", 1, 0, 1<<31-1, "`number` from which arrivals are drawn")
		durationFlag(fs, &b.Slice, "slice", 1500*time.Millisecond, 50*time.Millisecond, time.Minute,
			"`time` for which an arm makes calls before the next one takes its turn")
		fs.Func("budget", "most hedges per 100 calls, in `percent` (default 10)", func(s string) (err error) {
			if b.Budget, err = parseFloat(s); err == nil {
				_, err = hedge.New(hedge.WithAllMethods(), hedge.WithBudgetPercent(b.Budget))
			}
			return err
		})
		fs.BoolVar(&serve, "serve", false, "only run a server, until standard input ends; busy starts it so")
		fs.BoolVar(&sleep, "sleep", false, "with -serve: handlers sleep and keep no processor")
		fs.StringVar(&client, "client", "", "only run the busy client of the servers at these `addresses`; busy starts it so")
	}
	return command("busy",
		"servers and a client that are short of processor time: plain, hedged, and hedged with package shed",
		flags, func(ctx context.Context) error {
			self, err := os.Executable()
			switch b.Self = self; {
			case err != nil:
				return err
			case serve:
				return busy.Serve(os.Stdin, w, b.Handler, sleep)
			case client != "":
				return b.RunClient(ctx, w, log, strings.Split(client, ","))
			}
			return b.Run(ctx, w, log)
		})
}
