package acceptance_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/stats"
)

// TestControl_TellsTheTruth has a control group of 5%, which reports the latency without hedging.
// Where requests differ, the other calls do not show it.
func TestControl_TellsTheTruth(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	for name, distribution := range map[string]simulation.Latency{"sizes": sizes(1),
		"straggler": simulation.Drawing(testserver.DistributionT(t, "straggler"), 1)} {
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
				if truth, got := float64(check.truth), check.got; truth < float64(got.Low)-wide ||
					truth > float64(got.High)+wide || got.Value < got.Low || got.Value > got.High {
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

// TestControl_IsNeverHedged has a group of half of all calls, which are too slow to go without a
// hedge.
func TestControl_IsNeverHedged(t *testing.T) {
	longtest.Simulation(t)
	ended, rows := simulation.Client{
		Latency: simulation.Drawing(testserver.DistributionT(t, "constant:20ms"), 1), Calls: 2000, Concurrency: 1,
		Options: []hedge.Option{hedge.WithTrigger(hedge.Fixed(time.Millisecond)), hedge.WithMaxHedges(1),
			hedge.WithBudgetPercent(400), hedge.WithControl(50)},
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

// TestControl_BeginsAgain updates a scheduler with a control group: what changes how the other
// calls are hedged begins a new comparison, and what does not change it leaves the figures as they
// are.
func TestControl_BeginsAgain(t *testing.T) {
	fixed := func(d time.Duration) hedge.Option { return hedge.WithTrigger(hedge.Fixed(d)) }
	for _, tc := range []struct {
		name   string
		update []hedge.Option
		again  bool
	}{
		{"the same", nil, false},
		{"another method's budget", []hedge.Option{hedge.WithMethodOptions("/s/Other", hedge.WithBudgetPercent(1))}, false},
		{"another budget", []hedge.Option{hedge.WithBudgetPercent(1)}, true},
		{"another share", []hedge.Option{hedge.WithControl(40)}, true},
		{"another delay", []hedge.Option{fixed(20 * ms)}, true},
		{"another number", []hedge.Option{hedge.WithMaxHedges(1)}, true},
		{"a throttle", []hedge.Option{hedgetest.Throttle(10, 1)}, true},
		{"a limit", []hedge.Option{hedge.WithResetLimit(10, time.Second)}, true},
		{"a dry run", []hedge.Option{hedge.WithDryRun(true)}, true},
		{"no guard", []hedge.Option{hedge.WithGuard(false)}, true},
		{"by a rule", []hedge.Option{hedge.WithMethodOptions("/s/*", hedge.WithBudgetPercent(1))}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			options := []hedge.Option{hedge.WithAllMethods(), hedge.WithControl(50), fixed(10 * ms)}
			s := hedgetest.New(t, options...)
			for range 100 {
				hedgetest.Call(t, s, target, "/s/M", 0)
			}
			hedgetest.Update(t, s, append(options, tc.update...)...)
			g := s.Methods()[0].Gain
			if n := g.Calls + g.Control; n != 100 && !tc.again || n != 0 && tc.again {
				t.Errorf("%s: %d calls are compared", tc.name, n)
			}
			for range 100 {
				hedgetest.Call(t, s, target, "/s/M", 0)
			}
			if g = s.Methods()[0].Gain; tc.again && g.Calls+g.Control != 100 && tc.name != "a dry run" {
				t.Errorf("%s: %d calls are compared in the end", tc.name, g.Calls+g.Control)
			}
		})
	}
}

// TestControl_IsPlain: a call of the control group is not asked for its class, and the measured
// tail comes from the other calls.
func TestControl_IsPlain(t *testing.T) {
	longtest.Simulation(t)
	var asked atomic.Int64
	_, rows := simulation.Client{
		Latency: simulation.Drawing(testserver.DistributionT(t, "straggler"), 1), Calls: 20_000, Rate: 100,
		Options: []hedge.Option{hedge.WithControl(90),
			hedge.WithClass(func(context.Context, string, any) string { asked.Add(1); return "" })},
	}.Run(t)
	row := rows[0]
	if asked.Load() > 2200 || row.Gain.Calls > 2200 {
		t.Errorf("a class was asked of %d calls, of which %d were not in the control group", asked.Load(), row.Gain.Calls)
	}
	if c := row.Choice; c.MeasuredTail > 2*c.PredictedTail || c.UnhedgedTail < 3*c.PredictedTail {
		t.Errorf("p99 is %v, predicted %v; without hedging %v", c.MeasuredTail, c.PredictedTail, c.UnhedgedTail)
	}
}
