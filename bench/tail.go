package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
)

// What the library promises for the straggler workload with nothing configured, as shares of what the same
// calls take without it, and of the calls.
const (
	promisedP99       = 0.30
	promisedP999      = 0.30
	promisedExtraLoad = 0.105
)

// tail measures the tail at several concurrencies and judges it.
type tail struct {
	calls       int
	concurrency []int
	seed        int
	slowest     int
}

func (t *tail) run(ctx context.Context, w, log io.Writer) error {
	straggler := workloadNamed("straggler")
	law, err := testserver.ParseLaw(straggler.law)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s calls of the %s workload to 3 backends on loopback, seed %d: without and with hedging (nothing configured),\n"+
		"in alternating slices, or at the same time where only one call is under way.\n\n", count(int64(t.calls)), straggler.name, t.seed)

	table := newTable(w, 1, "concurrency", "p99", "hedged", "ratio", "p99.9", "hedged", "ratio",
		"extra load", "hedges", "won", "unpaid", "delay", "wrong", "failed", "stalled", "")
	var missed []error
	var slowest []func()
	for _, concurrency := range t.concurrency {
		c := &comparison{
			workload:    straggler,
			law:         law,
			policies:    []policy{policyNamed(none), policyNamed(adaptive)},
			calls:       t.calls,
			concurrency: concurrency,
			backends:    3,
			seed:        uint64(t.seed),
			atOnce:      concurrency == 1,
			keepRecords: t.slowest > 0,
		}
		p := startProgress(log, "concurrency "+strconv.Itoa(concurrency), int64(t.calls*len(c.policies)))
		results, stalled, err := c.run(ctx, p)
		p.end()
		if err != nil {
			return err
		}
		v := judge(concurrency, results[0], results[1], stalled)
		table.AppendRow(row(v.cells()...))
		missed = append(missed, v.err())
		slowest = append(slowest, func() { t.listSlowest(w, v) })
	}
	table.Render()
	fmt.Fprintf(w, "\nPromised: p99 and p99.9 at most %.2f and %.2f of the unhedged ones, extra load at most %s as the server counts it,\n"+
		"no wrong reply, no failed call. Unpaid are the hedges that were due and the budget did not pay for at once. Stalled is the\n"+
		"share of time for which the machine stood still, busy with other work; from %s on it shows in p99.9.\n",
		promisedP99, promisedP999, percent(promisedExtraLoad), fmt.Sprintf("%.2f%%", 100*stallsThatShow))
	for _, list := range slowest {
		list()
	}
	return errors.Join(missed...)
}

// verdict is how hedged calls compare with the same ones unhedged.
type verdict struct {
	concurrency   int
	plain, hedged *result
	p99, p999     float64 // hedged by unhedged
	stalled       stalls
}

func judge(concurrency int, plain, hedged *result, stalled stalls) verdict {
	by := func(q float64) float64 { return float64(hedged.percentile(q)) / float64(plain.percentile(q)) }
	return verdict{concurrency, plain, hedged, by(0.99), by(0.999), stalled}
}

// err says what was promised and not kept.
func (v verdict) err() error {
	var errs []error
	check := func(what string, got, most float64) {
		if !(got <= most) {
			errs = append(errs, fmt.Errorf("concurrency %d: %s is %.3f, promised is at most %.3f", v.concurrency, what, got, most))
		}
	}
	check("the ratio of p99", v.p99, promisedP99)
	check("the ratio of p99.9", v.p999, promisedP999)
	check("the extra load", v.hedged.extraLoad(), promisedExtraLoad)
	for _, r := range []*result{v.plain, v.hedged} {
		if err := r.err(); err != nil {
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
		millis(v.plain.percentile(0.99)), millis(v.hedged.percentile(0.99)), ratio(v.p99),
		millis(v.plain.percentile(0.999)), millis(v.hedged.percentile(0.999)), ratio(v.p999),
		fmt.Sprintf("%.2f%%", 100*v.hedged.extraLoad()),
		count(v.hedged.stats.Hedges), count(v.hedged.stats.HedgeWins), count(v.hedged.stats.BudgetExhausted),
		millis(v.hedged.learned.Delay),
		count(v.plain.wrong + v.hedged.wrong), count(v.plain.failed + v.hedged.failed),
		fmt.Sprintf("%.2f%%", 100*v.stalled.share()),
		word,
	}
}

// listSlowest shows what became of the slowest hedged calls: when each attempt reached the server, and when it
// ended there or was cancelled, in milliseconds after the first one.
func (t *tail) listSlowest(w io.Writer, v verdict) {
	if t.slowest == 0 {
		return
	}
	order := make([]int, len(v.hedged.latencies))
	for n := range order {
		order[n] = n
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(v.hedged.latencies[b], v.hedged.latencies[a]) })

	fmt.Fprintf(w, "\nThe slowest hedged calls at concurrency %d:\n", v.concurrency)
	table := newTable(w, 0, "call", "hedged", "unhedged", "attempts at the server, ms after the first: sent–ended (× cancelled)")
	for _, n := range order[:min(t.slowest, len(order))] {
		table.AppendRow(row(strconv.Itoa(n), millis(v.hedged.latencies[n]), millis(v.plain.latencies[n]), attempts(v.hedged.records[callID(n)])))
	}
	table.Render()
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
