package acceptance_test

import (
	"context"
	"encoding/json"
	"math"
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

// TestChoice_SaysWhatIsInForce compares the predictions for a distribution with the measurements.
func TestChoice_SaysWhatIsInForce(t *testing.T) {
	longtest.Simulation(t)
	ended, rows := simulation.Client{
		Latency: simulation.Drawing(straggler(t), 1), Calls: calls, Concurrency: 20, Seed: 1, Options: auto(10, 2),
	}.Run(t)
	row := rows[0]
	c := row.Choice
	t.Logf("%+v", c)
	if c.Delay != row.Delay || c.Delay < 8*ms || c.Delay > 12*ms || c.Probability < 0.9 || c.Probability > 1 ||
		c.MaxHedges < 1 || c.MaxHedges > 2 {
		t.Errorf("delay %v (%v in force), probability %v, %d hedges", c.Delay, row.Delay, c.Probability, c.MaxHedges)
	}
	for name, p := range map[string]struct {
		got, want time.Duration
		within    float64
	}{
		"predicted": {c.PredictedTail, ended.Tail(0.99), 0.05},
		"measured":  {c.MeasuredTail, ended.Tail(0.99), 0.05},
		"unhedged":  {c.UnhedgedTail, 64 * ms, 0.40}, // of a few dozen calls that were not cut short
	} {
		if !within(p.got, p.want, p.within) {
			t.Errorf("%s p99 %v, want %v", name, p.got, p.want)
		}
	}
	if got := ended.Load(); math.Abs(c.PredictedLoad-got) > 0.01 {
		t.Errorf("predicted load %.3f, the load was %.3f", c.PredictedLoad, got)
	}
	if c.Saved < 0.3 || c.Kept < 0.9 {
		t.Errorf("%.2f is to be saved, and %.2f of what was predicted is kept", c.Saved, c.Kept)
	}
}

// TestWithTrigger_Fixed hedges from the first call on, whatever was learned and below the least
// delay.
func TestWithTrigger_Fixed(t *testing.T) {
	distribution := simulation.Drawing(testserver.Constant(20*ms), 1)
	for delay, want := range map[time.Duration]int{0: 3, 500 * time.Microsecond: 3, 15 * ms: 2, 30 * ms: 1} {
		ended, _ := simulation.Client{Latency: distribution, Calls: 50, Concurrency: 1, Options: []hedge.Option{
			hedge.WithTrigger(hedge.Fixed(delay)), hedge.WithBudgetPercent(400),
		}}.Run(t)
		for _, c := range ended {
			if c.Attempts != want {
				t.Errorf("delay %v: call %d had %d attempts, want %d", delay, c.ID, c.Attempts, want)
			}
		}
	}
}

// TestChoice_CallersThatGiveUpProveNothing has most callers cancel their slow calls, as a fan-out
// does that needs only the first few answers.
func TestChoice_CallersThatGiveUpProveNothing(t *testing.T) {
	longtest.Simulation(t)
	distribution := straggler(t)
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		for id := range uint64(20_000) {
			ctx, cancel := context.WithCancel(t.Context())
			random := simulation.Generator(1, id, -1)
			if random.IntN(10) < 7 {
				time.AfterFunc(9500*time.Microsecond, cancel)
			}
			hedge.Do(ctx, s, target, method, func(ctx context.Context) (int, error) {
				return hedgetest.Taking(distribution.Draw(simulation.Generator(1, id, simulation.AttemptOf(ctx))))(ctx)
			})
			cancel()
			synctest.Wait()
		}
		c := s.Methods()[0].Choice
		t.Logf("%+v", c)
		if c.PredictedLoad < 0.05 {
			t.Errorf("few are to be hedged: %+v", c)
		}
	})
}

// TestMethods_SaysWhatIsInForce goes through what else than the trigger Auto decides, and what
// cannot be shown as JSON.
func TestMethods_SaysWhatIsInForce(t *testing.T) {
	longtest.Simulation(t)
	config := `{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": "0.5s"}}]}`
	for _, tc := range []struct {
		option hedge.Option
		delay  time.Duration
		choice bool
	}{
		{nil, 10 * ms, true},
		{hedge.WithDryRun(true), 10 * ms, true},
		{hedge.WithTrigger(hedge.Percentile(0.9)), 8 * ms, false},
		{hedge.WithTrigger(hedge.Fixed(50 * ms)), 50 * ms, false},
		{hedge.WithServiceConfig(config), 500 * ms, false},
	} {
		_, rows := simulation.Client{Latency: simulation.Drawing(straggler(t), 1), Calls: 2000, Concurrency: 10,
			Seed: 1, Options: []hedge.Option{tc.option}}.Run(t)
		_, err := json.Marshal(rows)
		if row := rows[0]; !within(row.Delay, tc.delay, 0.3) || (row.Choice != stats.Choice{}) != tc.choice ||
			row.Gain != nil || err != nil {
			t.Errorf("%v: %+v, want the delay %v, and a choice: %t", err, row, tc.delay, tc.choice)
		}
	}
}

// TestDryRun_ForecastsTheTargetPercentile has the tail that is forecast follow the trigger: p99
// unless Auto has another. A client that is not allowed to hedge at all has forecasts too. No hedge
// is sent. TestAuto_AsPredicted of internal/trigger compares predictions with clients that hedge.
func TestDryRun_ForecastsTheTargetPercentile(t *testing.T) {
	longtest.Simulation(t)
	for name, tc := range map[string]struct {
		trigger hedge.Trigger
		budget  float64
		want    func(stats.Method) time.Duration
	}{
		"auto":       {hedge.Auto(), 10, func(row stats.Method) time.Duration { return row.P99 }},
		"no budget":  {hedge.Auto(), 0, func(row stats.Method) time.Duration { return row.P99 }},
		"p90":        {hedge.Percentile(0.9), 10, func(row stats.Method) time.Duration { return row.P99 }},
		"the median": {hedge.Auto(hedge.TargetPercentile(0.5)), 10, func(row stats.Method) time.Duration { return row.P50 }},
		"the last of": {hedge.Auto(hedge.TargetPercentile(0.5), hedge.TargetPercentile(0.9)), 10,
			func(row stats.Method) time.Duration { return row.P90 }},
	} {
		ended, rows := simulation.Client{Latency: simulation.Drawing(testserver.Uniform(10*ms, 100*ms), 1),
			Calls: 3000, Concurrency: 10, Seed: 1,
			Options: []hedge.Option{hedge.WithDryRun(true), hedge.WithTrigger(tc.trigger),
				hedge.WithBudgetPercent(tc.budget)}}.Run(t)
		row := rows[0]
		if len(row.Forecasts) != 4 || ended.Hedges()+int(row.Hedges+row.Hedged) > 0 || (row.DryRun == 0) != (tc.budget == 0) ||
			!within(row.Forecasts[0].UnhedgedTail, tc.want(row), 0.05) {
			t.Errorf("%s: %v forecast, of p50 %v, p90 %v, p99 %v", name, row.Forecasts, row.P50, row.P90, row.P99)
		}
	}
}

// TestRule12_UnbudgetedMethodsDoNotPayForOthers sends nine calls in ten to a method with free
// hedges.
func TestRule12_UnbudgetedMethodsDoNotPayForOthers(t *testing.T) {
	longtest.Simulation(t)
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(ms)), hedge.WithBudgetPercent(400),
			hedge.WithMethodOptions("/paid.Svc/*", hedge.WithBudgetPercent(10)), hedge.WithServiceConfig(
				`{"methodConfig": [{"name": [{"service": "free.Svc"}], "hedgingPolicy": {"maxAttempts": 2, `+
					`"hedgingDelay": "0.001s"}}]}`))
		for i := range 5000 {
			name := "/free.Svc/Get"
			if i%10 == 0 {
				name = "/paid.Svc/Get"
			}
			hedgetest.Call(t, s, target, name, 5*ms)
		}
		synctest.Wait()
		for _, row := range s.Methods() {
			most := float64(row.Calls)
			if row.Method == "/paid.Svc/Get" {
				most = 0.1*most + row.Burst + 1
			}
			if float64(row.Hedges) > most || row.Hedges == 0 {
				t.Errorf("%s: %d hedges of %d calls", row.Method, row.Hedges, row.Calls)
			}
		}
	})
}
