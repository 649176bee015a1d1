// Package tail measures the tail of the straggler workload and compares it with the library's
// promise.
package tail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/progress"
	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/bench/table"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/testserver"
)

// The promise for the straggler workload with the default options, relative to the same calls
// without hedging.
const (
	promisedP99       = 0.30
	promisedP999      = 0.30
	promisedExtraLoad = 0.105
)

// Tail measures the tail at several concurrencies and judges it.
type Tail struct {
	Calls       int
	Concurrency []int
	Seed        int
	Slowest     int
}

func (t *Tail) Run(ctx context.Context, w, log io.Writer) error {
	straggler := workload.Named("straggler")
	distribution, err := testserver.ParseDistribution(straggler.Distribution)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s calls of the %s workload to 3 backends on loopback, seed %d: without and with hedging "+
		"(nothing configured),\n"+
		"in alternating slices, or at the same time where only one call is under way.\n\n", figure.Count(
		int64(t.Calls)), straggler.Name, t.Seed)

	rows := table.New(w, 1, "concurrency", "p99", "hedged", "ratio", "p99.9", "hedged", "ratio",
		"extra load", "hedges", "won", "unpaid", "delay", "wrong", "failed", "stalled", "")
	var missed []error
	var slowest []func()
	for _, concurrency := range t.Concurrency {
		c := &run.Comparison{
			Workload:     straggler,
			Distribution: distribution,
			Policies:     []policy.Policy{policy.Named(policy.None), policy.Named(policy.Adaptive)},
			Calls:        t.Calls,
			Concurrency:  concurrency,
			Backends:     3,
			Seed:         uint64(t.Seed),
			AtOnce:       concurrency == 1,
			KeepRecords:  t.Slowest > 0,
		}
		p := progress.Start(log, "concurrency "+strconv.Itoa(concurrency), int64(t.Calls*len(c.Policies)))
		results, stalled, err := c.Run(ctx, p)
		p.End()
		if err != nil {
			return err
		}
		v := judge(concurrency, results[0], results[1], stalled)
		rows.AppendRow(table.Row(v.cells()...))
		missed = append(missed, v.err())
		slowest = append(slowest, func() { t.listSlowest(w, v) })
	}
	rows.Render()
	fmt.Fprintf(w, "\nPromised: p99 and p99.9 at most %.2f and %.2f of the unhedged ones, extra load at most %s "+
		"as the server counts it,\n"+
		"no wrong reply, no failed call. Unpaid are the hedges that were due and the budget did not pay for at "+
		"once. Stalled is the\n"+
		"share of time for which the machine was stalled by other work; from %s on it shows in p99.9.\n",
		promisedP99, promisedP999, figure.Percent(promisedExtraLoad), fmt.Sprintf("%.2f%%", 100*run.StallsThatShow))
	for _, list := range slowest {
		list()
	}
	return errors.Join(missed...)
}

// verdict compares hedged calls with the same calls unhedged.
type verdict struct {
	concurrency   int
	plain, hedged *run.Result
	p99, p999     float64 // hedged by unhedged
	stalled       run.Stalls
}

func judge(concurrency int, plain, hedged *run.Result, stalled run.Stalls) verdict {
	by := func(q float64) float64 { return float64(hedged.Percentile(q)) / float64(plain.Percentile(q)) }
	return verdict{concurrency, plain, hedged, by(0.99), by(0.999), stalled}
}

// err returns the promises that were not kept.
func (v verdict) err() error {
	var errs []error
	check := func(what string, got, most float64) {
		if !(got <= most) {
			errs = append(errs, fmt.Errorf("concurrency %d: %s is %.3f, promised is at most %.3f", v.concurrency,
				what, got, most))
		}
	}
	check("the ratio of p99", v.p99, promisedP99)
	check("the ratio of p99.9", v.p999, promisedP999)
	check("the extra load", v.hedged.ExtraLoad(), promisedExtraLoad)
	for _, r := range []*run.Result{v.plain, v.hedged} {
		if err := r.Err(); err != nil {
			errs = append(errs, fmt.Errorf("concurrency %d: %w", v.concurrency, err))
		}
	}
	return errors.Join(errs...)
}

func (v verdict) cells() []string {
	word := "PASS"
	if v.err() != nil {
		word = "FAIL"
	}
	return []string{
		strconv.Itoa(v.concurrency),
		figure.Millis(v.plain.Percentile(0.99)), figure.Millis(v.hedged.Percentile(0.99)), figure.Ratio(v.p99),
		figure.Millis(v.plain.Percentile(0.999)), figure.Millis(v.hedged.Percentile(0.999)), figure.Ratio(v.p999),
		fmt.Sprintf("%.2f%%", 100*v.hedged.ExtraLoad()),
		figure.Count(v.hedged.Stats.Hedges), figure.Count(v.hedged.Stats.HedgeWins), figure.Count(
			v.hedged.Stats.BudgetExhausted),
		figure.Millis(v.hedged.Learned.Delay),
		figure.Count(v.plain.Wrong + v.hedged.Wrong), figure.Count(v.plain.Failed + v.hedged.Failed),
		fmt.Sprintf("%.2f%%", 100*v.stalled.Share()),
		word,
	}
}

// listSlowest lists the attempts of the slowest hedged calls: when each reached the server, and
// when it ended or was cancelled there, in milliseconds after the first one.
func (t *Tail) listSlowest(w io.Writer, v verdict) {
	if t.Slowest == 0 {
		return
	}
	order := make([]int, len(v.hedged.Latencies))
	for n := range order {
		order[n] = n
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(v.hedged.Latencies[b], v.hedged.Latencies[a]) })

	fmt.Fprintf(w, "\nThe slowest hedged calls at concurrency %d:\n", v.concurrency)
	rows := table.New(w, 0, "call", "hedged", "unhedged",
		"attempts at the server, ms after the first: sent–ended (× cancelled)")
	for _, n := range order[:min(t.Slowest, len(order))] {
		rows.AppendRow(table.Row(strconv.Itoa(n), figure.Millis(v.hedged.Latencies[n]),
			figure.Millis(v.plain.Latencies[n]), attempts(v.hedged.Records[workload.CallID(n)])))
	}
	rows.Render()
}

func attempts(records []testserver.Record) string {
	var s string
	for i, r := range records {
		if i > 0 {
			s += ", "
		}
		since := func(at time.Time) float64 { return float64(at.Sub(records[0].Arrival)) / float64(time.Millisecond) }
		s += fmt.Sprintf("#%d %.1f–%.1f", r.Number, since(r.Arrival), since(r.Ended))
		if r.WasCancelled() {
			s += "×"
		}
	}
	return s
}
