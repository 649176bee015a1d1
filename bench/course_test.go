package main

import (
	"math"
	"slices"
	"testing"
	"time"
)

// TestCorrelated checks that one request in ten is heavy, and is so in every attempt.
func TestCorrelated(t *testing.T) {
	results, _, err := comparisonOf(t, workloadNamed("correlated"), 3000, none, "static-10ms").run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	slow := 0
	for n, took := range results[0].latencies {
		if took > 30*time.Millisecond {
			slow++
			if hedged := results[1].latencies[n]; hedged < 30*time.Millisecond {
				t.Errorf("request %d is heavy, and a hedge of it took %v", n, hedged)
			}
		}
	}
	if share := float64(slow) / 3000; share < 0.08 || share > 0.12 {
		t.Errorf("%v of requests are heavy", share)
	}
}

// TestSaturatedCosts checks the queue against theory, and that extra load makes everyone slower there.
func TestSaturatedCosts(t *testing.T) {
	results, _, err := comparisonOf(t, workloadNamed("saturated"), 8000, none, "static-10ms").run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	low := loads[0]
	var sum time.Duration
	plain := results[0].of(low)
	for _, took := range plain {
		sum += took
	}
	// Erlang's C for 4 workers at 2.8 of load is 0.429: a mean wait of 0.429 · 8 ms / (4 − 2.8), and the service.
	const want = 8*0.429/1.2 + 8
	if mean := sum.Seconds() * 1e3 / float64(len(plain)); math.Abs(mean-want) > 0.12*want {
		t.Errorf("at 70%% load a call takes %.2f ms in the mean, queueing theory says %.2f", mean, want)
	}
	if p, h := quantile(plain, 0.5), quantile(results[1].of(low), 0.5); h < 2*p {
		t.Errorf("the median is %v, and %v if everything is hedged", p, h)
	}
}

// TestFanOut checks that a request is as slow as its slowest call, each to a target of its own.
func TestFanOut(t *testing.T) {
	w := workloadNamed("fan-out")
	w.fan = 8
	c := comparisonOf(t, w, 50, none)
	results, _, err := c.run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	alone := w
	alone.fan = 0
	single := comparisonOf(t, alone, 400, none)
	calls, _, err := single.run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for n, took := range results[0].latencies {
		if want := slices.Max(calls[0].latencies[8*n : 8*n+8]); took != want {
			t.Fatalf("request %d took %v, its slowest call takes %v", n, took, want)
		}
	}
	if r := results[0]; r.calls != 400 || r.server.Attempts != 400 {
		t.Errorf("%d calls, %d attempts at the servers", r.calls, r.server.Attempts)
	}
}
