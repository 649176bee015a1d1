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
)

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
// are. TestCompared_EveryOption of internal/settings has every option.
func TestControl_BeginsAgain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		update hedge.Option
		again  bool
	}{
		{"the same", nil, false},
		{"another method's budget", hedge.WithMethodOptions("/s/Other", hedge.WithBudgetPercent(1)), false},
		{"another budget", hedge.WithBudgetPercent(1), true},
		{"another share", hedge.WithControl(40), true},
		{"by a rule", hedge.WithMethodOptions("/s/*", hedge.WithBudgetPercent(1)), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			options := []hedge.Option{hedge.WithAllMethods(), hedge.WithControl(50), hedge.WithTrigger(hedge.Fixed(10 * ms))}
			s := hedgetest.New(t, options...)
			compared := func(calls int) int64 {
				for range calls {
					hedgetest.Call(t, s, target, "/s/M", 0)
				}
				g := s.Methods()[0].Gain
				return g.Calls + g.Control
			}
			compared(100)
			hedgetest.Update(t, s, append(options, tc.update)...)
			before, after := compared(0), compared(100)
			if begins := before == 0; begins != tc.again || before != 0 && before != 100 || after != before+100 {
				t.Errorf("%s: %d calls are compared after the update, and %d in the end", tc.name, before, after)
			}
		})
	}
}

// TestControl_IsPlain: a call of the control group is not asked for its class, the measured tail
// comes from the other calls, and the gain tells the groups apart.
func TestControl_IsPlain(t *testing.T) {
	longtest.Simulation(t)
	var asked atomic.Int64
	_, rows := simulation.Client{
		Latency: simulation.Drawing(testserver.DistributionT(t, "straggler"), 1), Calls: 20_000, Rate: 30,
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
	if g := *row.Gain; !g.Measured || !within(g.Unhedged.Value, 64*ms, 0.2) || !within(g.Hedged.Value, 17*ms, 0.3) ||
		g.Saved.Low <= 0 || math.Abs(g.Load-0.08) > 0.03 {
		t.Errorf("the gain is %+v", g)
	}
}
