package run

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

func newComparison(calls int) *Comparison {
	return &Comparison{
		Workload:     workload.Named("straggler"),
		Distribution: testserver.Straggler(testserver.Constant(time.Millisecond), 0.05, 30),
		Policies:     []policy.Policy{policy.Named(policy.None), policy.Named(policy.Adaptive)},
		Options:      []hedge.Option{hedge.WithWarmup(0, 5*time.Millisecond)},
		Calls:        calls,
		Concurrency:  8,
		Backends:     3,
		Seed:         5,
	}
}

func TestComparison(t *testing.T) {
	for _, atOnce := range []bool{false, true} {
		c := newComparison(400)
		c.KeepRecords, c.AtOnce = true, atOnce
		results, stalled, err := c.Run(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if stalled.watched <= 0 {
			t.Error("stalls were not watched for")
		}
		for _, r := range results {
			if err := r.Err(); err != nil {
				t.Error(err)
			}
			attempts, hedges, cancelled := 0, 0, 0
			for n := range c.Calls {
				if r.Latencies[n] <= 0 {
					t.Fatalf("%s: call %d took %v", r.Policy.Name, n, r.Latencies[n])
				}
				records := r.Records[workload.CallID(n)]
				if len(records) == 0 {
					t.Fatalf("%s: call %d did not reach the server", r.Policy.Name, n)
				}
				for _, record := range records {
					attempts++
					if record.Number > 0 {
						hedges++
					}
					if record.WasCancelled() {
						cancelled++
					}
				}
			}
			if want := float64(attempts-c.Calls) / float64(c.Calls); math.Abs(r.ExtraLoad()-want) > 1e-9 {
				t.Errorf("%s: extra load %v, the log says %v", r.Policy.Name, r.ExtraLoad(), want)
			}
			if r.Server.Hedges != int64(hedges) || r.Server.Cancelled != int64(cancelled) {
				t.Errorf("%s: %d hedges and %d cancelled, the log says %d and %d", r.Policy.Name,
					r.Server.Hedges, r.Server.Cancelled, hedges, cancelled)
			}
		}
		if plain, hedged := results[0], results[1]; plain.Server.Hedges != 0 || hedged.Server.Hedges == 0 ||
			hedged.Stats.Calls != int64(c.Calls) {
			t.Errorf("%d hedges without and %d with hedging, which counts %d calls of %d", plain.Server.Hedges,
				hedged.Server.Hedges, hedged.Stats.Calls, c.Calls)
		}
	}
}

// TestComparisonReportsBadCalls checks that failed calls and wrong replies are counted separately,
// and that the first is named.
func TestComparisonReportsBadCalls(t *testing.T) {
	c := newComparison(100)
	c.Workload.Call = func(_ context.Context, _ testpb.TestServiceClient, id uint64) (time.Duration, uint32, error) {
		switch {
		case id == workload.CallID(3):
			return time.Millisecond, 0, errors.New("broken")
		case id > workload.CallID(97):
			return time.Millisecond, 0, workload.WrongReply{Err: errors.New("odd")}
		}
		return time.Millisecond, 0, nil
	}
	results, _, err := c.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Failed != 1 || r.Wrong != 2 {
			t.Errorf("%s: %d failed and %d wrong, want 1 and 2", r.Policy.Name, r.Failed, r.Wrong)
		}
		if err := r.Err(); err == nil || !strings.Contains(err.Error(),
			r.Policy.Name+": 1 failed calls, 2 wrong replies; the first: call 3 with seed 5: broken") {
			t.Errorf("%s: the error is %v", r.Policy.Name, err)
		}
	}
}

func TestOverspent(t *testing.T) {
	every := func(d time.Duration, from, to time.Duration) (at []time.Duration) {
		for ; from < to; from += d {
			at = append(at, from)
		}
		return at
	}
	second := time.Second
	calls := every(10*time.Millisecond, 0, 60*second) // 10% of them earn 10 hedges a second; the burst is 20
	if got := overspent(calls, every(100*time.Millisecond, 0, 60*second), 10, 10); got > 0 {
		t.Errorf("overspent by %v where all that is earned is spent, want nothing", got)
	}
	twice := every(50*time.Millisecond, 20*second, 40*second) // 400 hedges in 20 s that earn 200, with a burst of 20
	if got := overspent(calls, twice, 10, 1000); got < 90 || got > 105 {
		t.Errorf("overspent by %v, want 100 without the savings of four bursts", got)
	}
	if got := overspent(calls, twice, 10, 0); got < 170 || got > 185 {
		t.Errorf("overspent by %v, want 180 if no hedge wins", got)
	}
}

// comparisonOf is a small comparison of a workload in virtual time.
func comparisonOf(t *testing.T, w workload.Workload, calls int, policies ...string) *Comparison {
	t.Helper()
	distribution, err := testserver.ParseDistribution(w.Distribution)
	if err != nil {
		t.Fatal(err)
	}
	c := &Comparison{Workload: w, Distribution: distribution, Calls: calls, Concurrency: w.Virtual.Concurrency,
		Backends: w.Servers(), Seed: 3, Clock: workload.VirtualClock}
	for _, name := range policies {
		c.Policies = append(c.Policies, policy.Named(name))
	}
	return c
}

// TestVirtualRepeats checks that a run in virtual time gives identical figures for the same seed,
// and others for another seed, for every workload and every policy but the peer's. The peer records
// latencies on the goroutines of losing attempts, in random order.
func TestVirtualRepeats(t *testing.T) {
	longtest.Simulation(t)
	for _, w := range longtest.First(1, workload.All) {
		calls := 300
		if w.Fan > 0 {
			w.Fan, calls = 5, 60
		}
		if w.Elsewhere {
			calls = 900 // into the first stall of a backend
		}
		if w.Fleet != nil {
			w = w.Shorten()
		}
		names := slices.DeleteFunc(slices.Clone(w.Policies), func(name string) bool { return policy.Named(name).Peer })
		c := comparisonOf(t, w, calls, names...)
		var runs [3][]*Result
		for i := range runs {
			if i == 2 {
				c.Seed++
			}
			var err error
			if runs[i], _, err = c.Run(t.Context(), nil); err != nil {
				t.Fatalf("%s: %v", w.Name, err)
			}
		}
		for i, first := range runs[0] {
			if err := first.Err(); err != nil {
				t.Errorf("%s: %v", w.Name, err)
			}
			if again := runs[1][i]; !slices.Equal(first.Latencies, again.Latencies) ||
				first.Server != again.Server || !slices.Equal(first.samples, again.samples) {
				t.Errorf("%s, %s: two runs with one seed differ", w.Name, first.Policy.Name)
			}
			if slices.Equal(first.Latencies, runs[2][i].Latencies) {
				t.Errorf("%s, %s: another seed gives the same latencies", w.Name, first.Policy.Name)
			}
		}
	}
}
