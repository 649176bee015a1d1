package run

import (
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
)

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

// TestPeer checks that the server and the replies tell the peer's hedges from its primaries.
func TestPeer(t *testing.T) {
	if longtest.Race {
		t.Skip("the peer has data races of its own")
	}
	w := workload.Named("straggler")
	// A hedge ends long before its primary, so that no two attempts of the peer write one reply at
	// the same time.
	w.Plan = func(m workload.Moment) testserver.Plan {
		if m.Number == 0 && m.ID%20 == 0 {
			return testserver.Plan{Delay: time.Second}
		}
		return testserver.Plan{Delay: time.Millisecond + time.Duration(m.ID%97)*time.Microsecond}
	}
	results, _, err := comparisonOf(t, w, 400, "failsafe-go").Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := results[0]; r.Won == 0 || r.Server.Hedges < r.Won || r.Failed+r.Wrong > 0 {
		t.Errorf("%d hedges, of which %d won; %d failed calls and %d wrong replies", r.Server.Hedges, r.Won,
			r.Failed, r.Wrong)
	}
}
