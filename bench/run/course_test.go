package run

import (
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/longtest"
)

// TestStalls checks that one call in 15 meets the stalled backend, and that no hedge does.
func TestStalls(t *testing.T) {
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
		t.Errorf("with hedges the slowest call takes %v; %d hedges win, and %d calls are slow without", worst,
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
		t.Errorf("at 70%% load the mean latency is %.2f ms, queueing theory predicts %.2f", mean, want)
	}
	if p, h := figure.Quantile(plain, 0.5), figure.Quantile(results[1].Of(low), 0.5); h < 2*p {
		t.Errorf("the median is %v, and %v if everything is hedged", p, h)
	}
}
