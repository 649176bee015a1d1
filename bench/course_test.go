package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestArrivals checks the pace of calls against what was asked for, and that no two meet.
func TestArrivals(t *testing.T) {
	const calls = 49_500
	rng := rand.New(rand.NewPCG(1, 2))
	steady := metronome(2*time.Millisecond)(rng, calls)
	for n, at := range steady {
		if late := at - time.Duration(n)*2*time.Millisecond; late < 0 || late >= 200*time.Microsecond {
			t.Fatalf("call %d is %v late", n, late)
		}
	}
	random := poissonSteps(350, 475)(rng, calls)
	if len(random) != calls || !slices.IsSorted(random) {
		t.Fatalf("%d calls, in order: %v", len(random), slices.IsSorted(random))
	}
	first := stepEnd([]float64{350, 475}, 0, calls)
	last := stepEnd([]float64{350, 475}, 1, calls)
	if last != calls {
		t.Errorf("the last step ends with call %d", last)
	}
	for _, step := range []struct {
		rate      float64
		from, end int
	}{{350, 0, first}, {475, first, calls}} {
		var gaps, squares float64
		for n := step.from + 1; n < step.end; n++ {
			gap := (random[n] - random[n-1]).Seconds() * step.rate
			gaps, squares = gaps+gap, squares+gap*gap
		}
		n := float64(step.end - step.from - 1)
		if mean, second := gaps/n, squares/n; math.Abs(mean-1) > 0.03 || math.Abs(second-2) > 0.15 {
			t.Errorf("at %v calls a second gaps have the moments %.3f and %.3f, want those of the exponential law, 1 and 2", step.rate, mean, second)
		}
	}
}

// TestParts checks that each call is in one part of its workload.
func TestParts(t *testing.T) {
	for _, w := range workloads {
		for _, calls := range []int{1, 7, 300, 45_000} {
			for n := range calls {
				in := 0
				for _, p := range w.parts {
					if p.has(n, calls) {
						in++
					}
				}
				if len(w.parts) > 0 && in != 1 {
					t.Fatalf("%s: call %d of %d is in %d parts", w.name, n, calls, in)
				}
			}
		}
	}
}

// TestSeconds checks what is told of each second against a log made by hand.
func TestSeconds(t *testing.T) {
	ms := time.Millisecond
	r := &result{
		began:     []time.Duration{0, 900 * ms, 1100 * ms, 3500 * ms},
		latencies: []time.Duration{5 * ms, 7 * ms, 9 * ms, 11 * ms},
		hedges:    []time.Duration{950 * ms, 1050 * ms, 1060 * ms, 9000 * ms},
		samples:   []sample{{time.Second, 6 * ms}, {2 * time.Second, 8 * ms}},
	}
	want := []second{{2, 1, 7 * ms, 6 * ms}, {1, 2, 9 * ms, 8 * ms}, {0, 0, 0, 0}, {1, 0, 11 * ms, 0}}
	if got := r.seconds(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestTrueQuantile checks the truth that a learned delay is drawn beside.
func TestTrueQuantile(t *testing.T) {
	shift, outage := workloadNamed("shift"), workloadNamed("outage")
	const run = 90 * time.Second
	base := shift.trueQuantile(0.90, time.Second, run)
	if base < 8*time.Millisecond || base > 10*time.Millisecond {
		t.Errorf("the p90 of stragglers is %v", base)
	}
	if got := shift.trueQuantile(0.90, 45*time.Second, run); got < 4*base-4 || got > 4*base+4 {
		t.Errorf("the p90 of stragglers four times as slow is %v, that of others %v", got, base)
	}
	if got := outage.trueQuantile(0.90, 45*time.Second, run); got != base+time.Second {
		t.Errorf("the p90 of stragglers 1 s slower is %v", got)
	}
	if got := outage.trueQuantile(0.90, 61*time.Second, run); got != base {
		t.Errorf("after the outage the p90 is %v", got)
	}
}

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
