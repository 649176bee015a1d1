package run

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/stats"
)

// Result is the outcome of all calls under one policy.
type Result struct {
	Policy    policy.Policy
	Calls     int             // all that were made: as many as latencies, but where a request is several
	Latencies []time.Duration // of call n at n
	Began     []time.Duration // of call n at n, after the start of the run
	Late      []bool          // call n failed, where calls may fail: in a fleet it missed its deadline; nil elsewhere
	hedges    []time.Duration // when each reached its server, likewise
	busy      []time.Duration // of a fleet's servers, up to the end of each step
	samples   []sample        // the learned state every second, if calls arrive by the clock
	Sorted    []time.Duration
	Server    testserver.Counts
	Stats     stats.Counts
	Won       int64 // calls that a hedge answered
	Learned   stats.Method
	Records   map[uint64][]testserver.Record // by id; nil unless kept
	Failed    int64
	Wrong     int64
	FirstErr  error
	Overspent float64 // hedges beyond the budget that the policy promises
}

func (r *Result) Percentile(q float64) time.Duration { return figure.Quantile(r.Sorted, q) }

// ExtraLoad is the number of attempts that the server saw beyond the calls, as a share of the
// calls.
func (r *Result) ExtraLoad() float64 {
	calls := float64(r.Calls)
	return (float64(r.Server.Attempts) - calls) / calls
}

// MissedDeadline is how many calls of a fleet missed their deadline, or failed where a workload has two
// destinations.
func (r *Result) MissedDeadline() int64 {
	missed := int64(0)
	for _, late := range r.Late {
		if late {
			missed++
		}
	}
	return missed
}

// Err returns what went wrong with the calls. It is nil for a peer.
func (r *Result) Err() error {
	if r.Policy.Peer {
		return nil
	}
	var errs []error
	if r.Failed+r.Wrong > 0 {
		errs = append(errs, fmt.Errorf("%s: %d failed calls, %d wrong replies; the first: %w", r.Policy.Name,
			r.Failed, r.Wrong, r.FirstErr))
	}
	if r.Overspent > 0 {
		errs = append(errs, fmt.Errorf(
			"%s: over some time of %v or longer %.1f hedges more than %g%% of the calls and what was saved",
			r.Policy.Name, budgetWindow, r.Overspent, r.Policy.Budget))
	}
	return errors.Join(errs...)
}

// Of returns the sorted latencies of a part of the calls.
func (r *Result) Of(p workload.Part) []time.Duration {
	var sorted []time.Duration
	for n, took := range r.Latencies {
		if p.Has(n, len(r.Latencies)) {
			sorted = append(sorted, took)
		}
	}
	slices.Sort(sorted)
	return sorted
}

// A budget promises: in any time of budgetWindow or longer, no more hedges than its share of the
// calls plus the savings before: a burst, which is the share of the calls of burstWindow and one
// at least, and savings of up to four bursts, which pay for two hedges and one more for each that
// wins.
const (
	budgetWindow = 10 * time.Second
	burstWindow  = 2 * time.Second
	savedBursts  = 4
	unproven     = 2
)

// overspent returns by how many hedges a target's budget was exceeded in the worst period of
// budgetWindow or longer, or in the whole run if that is shorter; 0 if the budget was kept. began
// are the times at which calls started; hedges are the times at which hedges reached the server, in
// order; won is how many calls a hedge answered in the whole run.
func overspent(began, hedges []time.Duration, percent float64, won int64) float64 {
	calls := slices.Sorted(slices.Values(began))
	share := percent / 100
	burst := max(1, share*float64(mostWithin(calls, burstWindow)))
	saved := min(savedBursts*burst, float64(unproven+won))

	// spent is the number of hedges after each hedge, less the share earned by the calls until
	// then. A period from just before one hedge to another spends the difference of their values.
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
	// The call that pays for the last hedge may have started just after it was counted.
	return max(0, worst-burst-saved-1)
}

// mostWithin returns the largest number of times that lie within a period of length d. times are in
// order.
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
		InFlight:  a.InFlight + b.InFlight,
	}
}
