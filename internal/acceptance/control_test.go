package acceptance_test

import (
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/stats"
)

// TestControl_TellsTheTruth has a control group of 5%: what it reports is what calls take without hedging, which is not to be
// seen from the other calls where requests differ.
func TestControl_TellsTheTruth(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	for name, distribution := range map[string]simulation.Latency{"sizes": sizes(1), "straggler": simulation.Drawing(testserver.DistributionT(t, "straggler"), 1)} {
		t.Run(name, func(t *testing.T) {
			sim := simulation.Client{Latency: distribution, Calls: 40_000, Rate: 40, Seed: 1}
			sim.Options = []hedge.Option{hedge.WithControl(10)}
			_, rows := sim.Run(t)
			g := rows[0].Gain
			t.Logf("%+v", *g)
			sim.Options = []hedge.Option{hedge.WithMaxHedges(0)}
			plain, _ := sim.Run(t)
			sim.Options = nil
			all, _ := sim.Run(t)
			saved := plain.Mean() - all.Mean()
			for what, check := range map[string]struct {
				got   stats.Interval
				truth time.Duration
			}{
				"unhedged":        {g.Unhedged, plain.Tail(0.99)},
				"hedged":          {g.Hedged, all.Tail(0.99)},
				"saved per call":  {g.Saved, time.Duration(saved)},
				"saved per hedge": {g.SavedPerHedge, time.Duration(float64(saved) / all.Load())},
			} {
				wide := float64(check.got.High-check.got.Low)/4 + float64(check.got.Value)/100 // for the truth is drawn too
				if truth, got := float64(check.truth), check.got; truth < float64(got.Low)-wide || truth > float64(got.High)+wide || got.Value < got.Low || got.Value > got.High {
					t.Errorf("%s is %+v, the truth is %v", what, check.got, check.truth)
				}
			}
			compared := g.Calls + g.Control
			if share := float64(g.Control) / float64(compared); math.Abs(share-0.10) > 0.01 || compared < 38_000 || !g.Measured {
				t.Errorf("%v of %d calls are in the control group", share, compared)
			}
			if g.Unhedged.Low <= g.Hedged.High || g.Percentile != 99 || math.Abs(g.Load-all.Load()) > 0.02 {
				t.Error("the groups are not told apart")
			}
		})
	}
}

// TestControl_IsNeverHedged has a group of half of all calls, which are too slow to go without a hedge.
func TestControl_IsNeverHedged(t *testing.T) {
	longtest.Simulation(t)
	ended, rows := simulation.Client{
		Latency: simulation.Drawing(testserver.DistributionT(t, "constant:20ms"), 1), Calls: 2000, Concurrency: 1,
		Options: []hedge.Option{hedge.WithTrigger(hedge.Fixed(time.Millisecond)), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400), hedge.WithControl(50)},
	}.Run(t)
	hedged := int64(0)
	for _, c := range ended {
		hedged += int64(c.Attempts - 1)
	}
	g := rows[0].Gain
	if g.Calls != hedged || g.Calls+g.Control != int64(len(ended)) || hedged < 900 || hedged > 1100 {
		t.Errorf("%d calls in the control group, %d outside, %d hedged", g.Control, g.Calls, hedged)
	}
}

func TestControl_None(t *testing.T) {
	longtest.Simulation(t)
	_, rows := simulation.Client{Latency: simulation.Drawing(testserver.DistributionT(t, "straggler"), 1), Calls: 1000, Concurrency: 10}.Run(t)
	if rows[0].Gain != nil {
		t.Errorf("%+v without a control group", rows[0].Gain)
	}
	for _, percent := range []float64{-1, 100.1, math.NaN()} {
		if _, err := hedge.New(hedge.WithAllMethods(), hedge.WithControl(percent)); err == nil {
			t.Errorf("WithControl(%v) is no error", percent)
		}
	}
}
