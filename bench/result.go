package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
)

// result is what became of the calls under one policy.
type result struct {
	policy    policy
	calls     int             // all that were made: as many as latencies, but where a request is several
	latencies []time.Duration // of call n at n
	began     []time.Duration // of call n at n, after the start of the run
	hedges    []time.Duration // when each reached its server, likewise
	samples   []sample        // what was learned, every second, where calls arrive by the clock
	sorted    []time.Duration
	server    testserver.Counts
	stats     hedge.Stats
	won       int64 // calls whose answer is a hedge's
	learned   hedge.TargetStats
	records   map[uint64][]testserver.Record // by id; nil unless kept
	failed    int64
	wrong     int64
	firstErr  error
	overspent float64 // hedges beyond the budget that the policy promises
}

func (r *result) percentile(q float64) time.Duration { return quantile(r.sorted, q) }

// extraLoad is the attempts that the server saw beyond the calls, as a share of the calls.
func (r *result) extraLoad() float64 {
	calls := float64(r.calls)
	return (float64(r.server.Attempts) - calls) / calls
}

// err says what was wrong with the calls, unless it is a peer's doing.
func (r *result) err() error {
	if r.policy.peer {
		return nil
	}
	var errs []error
	if r.failed+r.wrong > 0 {
		errs = append(errs, fmt.Errorf("%s: %d failed calls, %d wrong replies; the first: %w", r.policy.name, r.failed, r.wrong, r.firstErr))
	}
	if r.overspent > 0 {
		errs = append(errs, fmt.Errorf("%s: over some time of %v or longer %.1f hedges more than %g%% of the calls and the burst",
			r.policy.name, budgetWindow, r.overspent, r.policy.budget))
	}
	return errors.Join(errs...)
}

// of is the part of a result that belongs to some of its calls: their latencies.
func (r *result) of(p part) []time.Duration {
	var sorted []time.Duration
	for n, took := range r.latencies {
		if p.has(n, len(r.latencies)) {
			sorted = append(sorted, took)
		}
	}
	slices.Sort(sorted)
	return sorted
}

// What a budget promises: over this time or longer, its share of the calls and a burst, which is what the
// calls of so much time earn.
const (
	budgetWindow = 10 * time.Second
	burstWindow  = 2 * time.Second
)

// overspent returns by how many hedges a target's budget was exceeded: in the worst stretch of time that is as long as
// budgetWindow or longer, or in the whole run where that is shorter; 0 if it was kept. The calls began, and the hedges
// reached the server, at the times given, hedges in order.
func overspent(began, hedges []time.Duration, percent float64) float64 {
	calls := slices.Sorted(slices.Values(began))
	share := percent / 100
	burst := max(1, share*float64(mostWithin(calls, burstWindow)))

	// spent is, after each hedge, how many there were less what the calls so far had earned. A stretch from before one
	// hedge to another spends the difference of the two.
	worst, least, lag, c := 0.0, 0.0, 0, 0
	spent := make([]float64, 0, len(hedges))
	for i, at := range hedges {
		for c < len(calls) && calls[c] <= at {
			c++
		}
		spent = append(spent, float64(i+1)-share*float64(c))
		for ; hedges[lag] <= at-budgetWindow; lag++ {
			least = min(least, spent[lag]-1) // just before that hedge
		}
		worst = max(worst, spent[i]-least)
	}
	// The last hedge that a call earned may find the next call's share missing.
	return max(0, worst-burst-1)
}

// mostWithin returns the most of the times, which are in order, that lie within so much time.
func mostWithin(times []time.Duration, d time.Duration) int {
	most, first := 0, 0
	for i, at := range times {
		for times[first] < at-d {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func sum(a, b testserver.Counts) testserver.Counts {
	return testserver.Counts{
		Attempts:  a.Attempts + b.Attempts,
		Hedges:    a.Hedges + b.Hedges,
		Cancelled: a.Cancelled + b.Cancelled,
		Failed:    a.Failed + b.Failed,
		Messages:  a.Messages + b.Messages,
		InFlight:  a.InFlight + b.InFlight,
	}
}
