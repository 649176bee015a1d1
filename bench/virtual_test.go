package main

import (
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
)

// comparisonOf is a small comparison of a workload as compare runs it.
func comparisonOf(t *testing.T, w workload, calls int, policies ...string) *comparison {
	t.Helper()
	law, err := testserver.ParseLaw(w.law)
	if err != nil {
		t.Fatal(err)
	}
	c := &comparison{workload: w, law: law, calls: calls, concurrency: w.virtual.concurrency, backends: w.servers(), seed: 3, clock: virtualClock}
	for _, name := range policies {
		c.policies = append(c.policies, policyNamed(name))
	}
	return c
}

// TestVirtualRepeats checks that a run in virtual time gives the same figures to the digit for the same seed, for
// every workload and every policy but the peer's, and others for another seed. The peer records what attempts took on
// the goroutines of those that lost, in an order left to chance.
func TestVirtualRepeats(t *testing.T) {
	for _, w := range workloads {
		calls := 300
		if w.fan > 0 {
			w.fan, calls = 5, 60
		}
		names := slices.DeleteFunc(slices.Clone(w.policies), func(name string) bool { return policyNamed(name).peer })
		c := comparisonOf(t, w, calls, names...)
		var runs [3][]*result
		for i := range runs {
			if i == 2 {
				c.seed++
			}
			var err error
			if runs[i], _, err = c.run(t.Context(), nil); err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
		}
		for i, first := range runs[0] {
			if err := first.err(); err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
			if again := runs[1][i]; !slices.Equal(first.latencies, again.latencies) || first.server != again.server || !slices.Equal(first.samples, again.samples) {
				t.Errorf("%s, %s: two runs with one seed differ", w.name, first.policy.name)
			}
			if slices.Equal(first.latencies, runs[2][i].latencies) {
				t.Errorf("%s, %s: another seed gives the same latencies", w.name, first.policy.name)
			}
		}
	}
}

// TestPoliciesShareTheirDraws checks that what a call takes without a hedge is the same under every policy.
func TestPoliciesShareTheirDraws(t *testing.T) {
	results, _, err := comparisonOf(t, workloadNamed("straggler"), 500, none, "static-1s").run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(results[0].latencies, results[1].latencies) {
		t.Error("calls take other times under a policy that never had to hedge")
	}
}

// TestPeer checks that the peer's hedges are told from its primaries, by the server and in the answers.
func TestPeer(t *testing.T) {
	if raceDetector {
		t.Skip("the peer has data races of its own")
	}
	w := workloadNamed("straggler")
	// A hedge is done long before its primary, so that no two attempts of the peer's write one reply at a time.
	w.plan = func(m moment) testserver.Plan {
		if m.Number == 0 && m.ID%20 == 0 {
			return testserver.Plan{Delay: time.Second}
		}
		return testserver.Plan{Delay: time.Millisecond + time.Duration(m.ID%97)*time.Microsecond}
	}
	results, _, err := comparisonOf(t, w, 400, "failsafe-go").run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := results[0]; r.won == 0 || r.server.Hedges < r.won || r.failed+r.wrong > 0 {
		t.Errorf("%d hedges, of which %d won; %d failed calls and %d wrong replies", r.server.Hedges, r.won, r.failed, r.wrong)
	}
}

// TestHeadersAreTheWrongSignal checks that a policy that goes by response headers hedges every stream.
func TestHeadersAreTheWrongSignal(t *testing.T) {
	results, _, err := comparisonOf(t, workloadNamed("ttft"), 400, "headers-p90").run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if extra := results[0].extraLoad(); extra < 0.95 {
		t.Errorf("extra load %v, want nearly 1: headers come at once", extra)
	}
}
