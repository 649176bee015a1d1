package hedge_test

import (
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/stats"
)

// TestControl_TellsTheTruth has a control group of 5%: what it reports is what calls take without hedging, which is not to be
// seen from the other calls where requests differ.
func TestControl_TellsTheTruth(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	for name, distribution := range map[string]attemptDistribution{"sizes": sizes, "straggler": drawing(testserver.DistributionT(t, "straggler"), 1)} {
		t.Run(name, func(t *testing.T) {
			sim := simulation{distribution: distribution, calls: 20_000, rate: 500, seed: 1}
			sim.options = []hedge.Option{hedge.WithControl(5)}
			ended, rows := sim.run(t)
			row := rows[0]
			c := row.Control
			t.Logf("%+v; unhedged p99 %v from %s", *c, row.Choice.UnhedgedTail, row.Choice.UnhedgedTailFrom)
			sim.options = []hedge.Option{hedge.WithMaxHedges(0)}
			plain, _ := sim.run(t)
			for what, check := range map[string]struct {
				got   stats.Interval
				truth time.Duration
			}{
				"p50":         {c.Unhedged.P50, tail(plain, 0.50)},
				"p99":         {c.Unhedged.P99, tail(plain, 0.99)},
				"p99, hedged": {c.Hedgeable.P99, tail(ended, 0.99)},
			} {
				low, high := float64(check.got.Low)*0.99, float64(check.got.High)*1.01 // buckets are so wide
				if truth := float64(check.truth); truth < low || truth > high || check.got.Value < check.got.Low || check.got.Value > check.got.High {
					t.Errorf("%s is %+v, the truth is %v", what, check.got, check.truth)
				}
			}
			all := c.Unhedged.Calls + c.Hedgeable.Calls
			if share := float64(c.Unhedged.Calls) / float64(all); math.Abs(share-0.05) > 0.007 || all < 19_000 {
				t.Errorf("%v of %d calls are in the control group", share, all)
			}
			if c.Unhedged.P99.Low <= c.Hedgeable.P99.High {
				t.Error("the groups are not told apart")
			}
			mean := func(calls []outcome) (sum float64) {
				for _, c := range calls {
					sum += float64(c.took) / float64(len(calls))
				}
				return sum
			}
			saved := (mean(plain) - mean(ended)) / load(ended)
			if got := float64(c.SavedPerHedge); got < 0.5*saved || got > 1.6*saved {
				t.Errorf("%v saved per hedge, in truth %v", c.SavedPerHedge, time.Duration(saved))
			}
			if !within(row.Choice.UnhedgedTail, c.Unhedged.P99.Value, 0.01) {
				t.Errorf("the choice says %v, the control group %v", row.Choice.UnhedgedTail, c.Unhedged.P99.Value)
			}
		})
	}
}

// TestControl_IsNeverHedged has a group of half of all calls, which are too slow to go without a hedge.
func TestControl_IsNeverHedged(t *testing.T) {
	longtest.Simulation(t)
	ended, rows := simulation{
		distribution: drawing(testserver.DistributionT(t, "constant:20ms"), 1), calls: 2000, concurrency: 1,
		options: []hedge.Option{hedge.WithTrigger(hedge.Fixed(time.Millisecond)), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400), hedge.WithControl(50)},
	}.run(t)
	hedged := int64(0)
	for _, c := range ended {
		hedged += int64(c.attempts - 1)
	}
	c := rows[0].Control
	if c.Hedgeable.Calls != hedged || c.Hedgeable.Calls+c.Unhedged.Calls != int64(len(ended)) || hedged < 900 || hedged > 1100 {
		t.Errorf("%d calls in the control group, %d outside, %d hedged", c.Unhedged.Calls, c.Hedgeable.Calls, hedged)
	}
}

func TestControl_None(t *testing.T) {
	longtest.Simulation(t)
	_, rows := simulation{distribution: drawing(testserver.DistributionT(t, "straggler"), 1), calls: 1000, concurrency: 10}.run(t)
	if rows[0].Control != nil {
		t.Errorf("%+v without a control group", rows[0].Control)
	}
	for _, percent := range []float64{-1, 50.1, math.NaN()} {
		if _, err := hedge.New(hedge.WithAllMethods(), hedge.WithControl(percent)); err == nil {
			t.Errorf("WithControl(%v) is no error", percent)
		}
	}
}
