package run

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/longtest"
)

// TestCorrelated checks that one request in ten is slow, and is slow in every attempt.
func TestCorrelated(t *testing.T) {
	longtest.Simulation(t)
	results, _, err := comparisonOf(t, workload.Named("correlated"), 3000, policy.None,
		"static-10ms").Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	slow := 0
	for n, took := range results[0].Latencies {
		if took > 30*time.Millisecond {
			slow++
			if hedged := results[1].Latencies[n]; hedged < 30*time.Millisecond {
				t.Errorf("request %d is heavy, and a hedge of it took %v", n, hedged)
			}
		}
	}
	if share := float64(slow) / 3000; share < 0.08 || share > 0.12 {
		t.Errorf("%v of requests are heavy", share)
	}
}

// TestStandstill checks that one call in 15 meets the stalled backend, and that no hedge does.
func TestStandstill(t *testing.T) {
	longtest.Simulation(t)
	const calls = 2500 // 5 s: one backend stalls once
	results, _, err := comparisonOf(t, workload.Named("stalls"), calls, policy.None, "static-10ms").Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const slow = 20 * time.Millisecond // neither work alone nor a hedge's
	met := 0
	for n, took := range results[0].Latencies {
		if took > slow {
			met++
			if second := results[0].Began[n] % (5 * time.Second); second < 990*time.Millisecond || second > 2*time.Second {
				t.Errorf("call %d, %v after the start, took %v", n, results[0].Began[n], took)
			}
		}
	}
	if share := float64(met) / calls; share < 0.055 || share > 0.075 {
		t.Errorf("%.3f of calls meet the stalled backend, want 1/15", share)
	}
	hedged := results[1]
	if worst := hedged.Percentile(1); worst > slow || hedged.Won < int64(met)*9/10 {
		t.Errorf("with hedges the slowest call takes %v; %d hedges win where %d calls are slow without", worst,
			hedged.Won, met)
	}
}

// TestSaturatedCosts checks the queue against theory, and that extra load makes all calls slower
// there.
func TestSaturatedCosts(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	results, _, err := comparisonOf(t, workload.Named("saturated"), 8000, policy.None, "static-10ms").Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	low := workload.Named("saturated").Parts[0]
	var sum time.Duration
	plain := results[0].Of(low)
	for _, took := range plain {
		sum += took
	}
	// Erlang's C for 4 workers at 2.8 of load is 0.429: a mean wait of 0.429 · 8 ms / (4 − 2.8),
	// and the service.
	const want = 8*0.429/1.2 + 8
	if mean := sum.Seconds() * 1e3 / float64(len(plain)); math.Abs(mean-want) > 0.12*want {
		t.Errorf("at 70%% load a call takes %.2f ms in the mean, queueing theory says %.2f", mean, want)
	}
	if p, h := figure.Quantile(plain, 0.5), figure.Quantile(results[1].Of(low), 0.5); h < 2*p {
		t.Errorf("the median is %v, and %v if everything is hedged", p, h)
	}
}

// TestFanOut checks that a request is as slow as its slowest call, and that each call goes to a
// target of its own.
func TestFanOut(t *testing.T) {
	longtest.Simulation(t)
	w := workload.Named("fan-out")
	w.Fan = 8
	c := comparisonOf(t, w, 50, policy.None)
	results, _, err := c.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	alone := w
	alone.Fan = 0
	single := comparisonOf(t, alone, 400, policy.None)
	calls, _, err := single.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for n, took := range results[0].Latencies {
		if want := slices.Max(calls[0].Latencies[8*n : 8*n+8]); took != want {
			t.Fatalf("request %d took %v, its slowest call takes %v", n, took, want)
		}
	}
	if r := results[0]; r.Calls != 400 || r.Server.Attempts != 400 {
		t.Errorf("%d calls, %d attempts at the servers", r.Calls, r.Server.Attempts)
	}
}
