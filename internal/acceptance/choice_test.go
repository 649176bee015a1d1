package acceptance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// TestChoice_SaysWhatIsInForce compares what was predicted for a distribution with what then happened.
func TestChoice_SaysWhatIsInForce(t *testing.T) {
	longtest.Simulation(t)
	ended, rows := simulation{
		distribution: drawing(straggler(t), 1), calls: calls, concurrency: 20, seed: 1, options: auto(10, 2),
	}.run(t)
	row := rows[0]
	c := row.Choice
	t.Logf("%+v", c)
	if c.Delay != row.Delay || c.Delay < 8*ms || c.Delay > 12*ms || c.Probability < 0.9 || c.Probability > 1 || c.MaxHedges < 1 || c.MaxHedges > 2 {
		t.Errorf("delay %v (%v in force), probability %v, %d hedges", c.Delay, row.Delay, c.Probability, c.MaxHedges)
	}
	for name, p := range map[string]struct {
		got, want time.Duration
		within    float64
	}{
		"predicted": {c.PredictedTail, tail(ended, 0.99), 0.05},
		"measured":  {c.MeasuredTail, tail(ended, 0.99), 0.05},
		"unhedged":  {c.UnhedgedTail, 64 * ms, 0.40}, // of a few dozen calls that were not cut short
	} {
		if !within(p.got, p.want, p.within) {
			t.Errorf("%s p99 %v, want %v", name, p.got, p.want)
		}
	}
	if got := load(ended); math.Abs(c.PredictedLoad-got) > 0.01 {
		t.Errorf("predicted load %.3f, the load was %.3f", c.PredictedLoad, got)
	}
	if c.Saved < 0.5 || c.Kept < 0.9 {
		t.Errorf("%.2f is to be saved, and %.2f of what was predicted is kept", c.Saved, c.Kept)
	}
}

// TestChoice_HedgesThatDoNotPay has a distribution under which hedging is of no use and one under which hedges never win.
func TestChoice_HedgesThatDoNotPay(t *testing.T) {
	longtest.Simulation(t)
	steady := testserver.LogNormal(20*ms, 200*time.Microsecond)
	slow := testserver.Straggler(testserver.LogNormal(5*ms, 2*ms), 0.05, 10)
	for _, tc := range []struct {
		name         string
		distribution func(id uint64, attempt int, at time.Duration) time.Duration
	}{
		{"steady", drawing(steady, 1)},
		{"no faster the second time", func(id uint64, attempt int, at time.Duration) time.Duration {
			d := slow.Draw(generator(1, id, 0)) // the request's own
			if attempt > 0 {
				d += ms
			}
			return d
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ended, rows := simulation{distribution: tc.distribution, calls: 80_000, concurrency: 20, seed: 1, options: auto(10, 2)}.run(t)
			t.Logf("%+v (load %.4f)", rows[0].Choice, load(ended[60_000:]))
			if got := load(ended[60_000:]); got > 0.01 {
				t.Errorf("load %.4f, want less than 1%%", got)
			}
		})
	}
}

// TestChoice_HedgesThatPayAgain lets hedges be useless for a while, by no change of what calls take that a primary could tell.
func TestChoice_HedgesThatPayAgain(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	distribution := straggler(t)
	const rate = 500
	ended, rows := simulation{
		distribution: func(id uint64, attempt int, at time.Duration) time.Duration {
			if at < 60*time.Second {
				attempt = 0 // as slow as the primary was
			}
			return distribution.Draw(generator(1, id, attempt))
		},
		calls: 150 * rate, rate: rate, seed: 1, options: auto(10, 2),
	}.run(t)
	seconds := perSecond(ended)
	of := func(from, to int) (calls []outcome) {
		for _, second := range seconds[from:to] {
			calls = append(calls, second...)
		}
		return calls
	}
	if got := load(of(45, 60)); got > 0.01 {
		t.Errorf("load %.4f while hedges are of no use", got)
	}
	if got := load(of(130, 149)); got < 0.06 {
		t.Errorf("load %.4f when they have been again for 70 s: %+v", got, rows[0].Choice)
	}
}

// TestAuto_AnyScale has the same distribution a thousand times slower and a few times faster, at one call a second and at 5,000,
// with nothing configured.
func TestAuto_AnyScale(t *testing.T) {
	longtest.Simulation(t)
	type traffic struct {
		base  time.Duration
		rate  float64
		calls int
		bound float64 // p99 by that of none
	}
	for _, tc := range longtest.First(1, []traffic{
		// Where calls are few the bucket holds a single token, and of two stragglers in a row one has to do without.
		{5 * ms, 1, 5000, 0.90},
		{time.Second, 1, 5000, 0.80},
		{5 * ms, 10, 20_000, 0.55},
		{ms, 5000, 60_000, 0.45}, // the least delay is 1 ms, nearly the median
		{10 * time.Second, 20, 40_000, 0.35},
	}) {
		t.Run(fmt.Sprintf("%v at %v/s", tc.base, tc.rate), func(t *testing.T) {
			distribution := testserver.Straggler(testserver.LogNormal(tc.base, tc.base*2/5), 0.05, 10)
			var p99 [2]time.Duration
			for i, hedges := range []int{0, 2} {
				ended, rows := simulation{
					distribution: drawing(distribution, 1), calls: tc.calls, rate: tc.rate, seed: 1, options: []hedge.Option{hedge.WithMaxHedges(hedges)},
				}.run(t)
				p99[i] = tail(ended, 0.99)
				if hedges > 0 {
					t.Logf("p99 %v, load %.4f, delay %v", p99, load(ended), rows[0].Delay)
					if got := load(ended); got > 0.105 {
						t.Errorf("load %.4f", got)
					}
				}
			}
			if got := float64(p99[1]) / float64(p99[0]); got > tc.bound {
				t.Errorf("p99 is %.3f of none's, want at most %v", got, tc.bound)
			}
		})
	}
}

// TestDryRun checks that nothing is sent, and the forecast against what happens when it is for real.
func TestDryRun(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	for _, name := range longtest.First(1, []string{"straggler", "slow-one-percent", "pareto"}) {
		t.Run(name, func(t *testing.T) {
			sim := simulation{distribution: drawing(testserver.DistributionT(t, name), 1), calls: 20_000, concurrency: 20, seed: 1}
			sim.options = []hedge.Option{hedge.WithDryRun(true)}
			ended, rows := sim.run(t)
			row := rows[0]
			if extra := load(ended); extra != 0 || row.Hedges != 0 || row.Hedged != 0 {
				t.Errorf("extra load %v, %d hedges counted in a dry run", extra, row.Hedges)
			}
			if got := float64(row.DryRun) / float64(row.Calls); got < 0.015 || got > 0.105 {
				t.Errorf("%.3f of calls would have been hedged at a budget of 10%%", got)
			}
			if len(row.Forecasts) != 4 {
				t.Fatalf("%d forecasts, want those for 2, 5, 10 and 20%%", len(row.Forecasts))
			}
			for _, f := range longtest.First(2, row.Forecasts) {
				sim.options = []hedge.Option{hedge.WithBudgetPercent(f.BudgetPercent)}
				real, _ := sim.run(t)
				real = real[2000:]
				p99, extra := tail(real, 0.99), load(real)
				t.Logf("budget %v%%: p99 %v forecast, %v seen; load %.3f and %.3f", f.BudgetPercent, f.Tail, p99, f.Load, extra)
				precise := 0.10
				if name == "slow-one-percent" || name == "straggler" && f.BudgetPercent == 5 {
					precise = 0.35 // where each slow call just gets its hedge, or does not
				}
				// A plan that was tried is preferred to one that costs less and is worth about as much.
				better := extra > f.Load+0.015 && extra <= f.BudgetPercent/100 && p99 < f.Tail
				if !better && (!within(f.Tail, p99, precise) || math.Abs(f.Load-extra) > 0.015) {
					t.Errorf("budget %v%%: forecast p99 %v and load %.3f, seen %v and %.3f", f.BudgetPercent, f.Tail, f.Load, p99, extra)
				}
				if !within(f.UnhedgedTail, tail(ended, 0.99), 0.05) {
					t.Errorf("unhedged p99 %v, seen %v", f.UnhedgedTail, tail(ended, 0.99))
				}
			}
		})
	}
}

// TestWithTrigger_Fixed hedges from the first call on, whatever was learned and below the least delay.
func TestWithTrigger_Fixed(t *testing.T) {
	distribution := drawing(testserver.Constant(20*ms), 1)
	for delay, want := range map[time.Duration]int{0: 3, 500 * time.Microsecond: 3, 15 * ms: 2, 30 * ms: 1} {
		ended, _ := simulation{distribution: distribution, calls: 50, concurrency: 1, options: []hedge.Option{
			hedge.WithTrigger(hedge.Fixed(delay)), hedge.WithBudgetPercent(400),
		}}.run(t)
		for _, c := range ended {
			if c.attempts != want {
				t.Errorf("delay %v: call %d had %d attempts, want %d", delay, c.id, c.attempts, want)
			}
		}
	}
}

// TestChoice_CallersThatGiveUpProveNothing has most callers cancel their slow calls, as a fan-out does that needs only
// the first few answers.
func TestChoice_CallersThatGiveUpProveNothing(t *testing.T) {
	longtest.Simulation(t)
	distribution := straggler(t)
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		for id := range uint64(20_000) {
			ctx, cancel := context.WithCancel(t.Context())
			random := generator(1, id, -1)
			if random.IntN(10) < 7 {
				time.AfterFunc(9500*time.Microsecond, cancel)
			}
			hedge.Do(ctx, s, target, method, func(ctx context.Context) (int, error) {
				return hedgetest.Taking(distribution.Draw(generator(1, id, attemptOf(ctx))))(ctx)
			})
			cancel()
			synctest.Wait()
		}
		c := s.Targets()[0].Choice
		t.Logf("%+v", c)
		if c.PredictedLoad < 0.05 {
			t.Errorf("few are to be hedged: %+v", c)
		}
	})
}

// TestTargets_SaysWhatIsInForce goes through what else than the trigger Auto decides, and what cannot be shown as JSON.
func TestTargets_SaysWhatIsInForce(t *testing.T) {
	longtest.Simulation(t)
	const config = `{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": "0.5s"}}]}`
	for name, tc := range map[string]struct {
		option hedge.Option
		delay  time.Duration // 0: learned
		choice bool
	}{
		"auto":       {nil, 0, true},
		"percentile": {hedge.WithTrigger(hedge.Percentile(0.9)), 0, false},
		"fixed":      {hedge.WithTrigger(hedge.Fixed(50 * ms)), 50 * ms, false},
		"policy":     {hedge.WithServiceConfig(config), 500 * ms, false},
		"dry run":    {hedge.WithDryRun(true), 0, true},
	} {
		_, rows := simulation{distribution: drawing(straggler(t), 1), calls: 2000, concurrency: 10, seed: 1, options: []hedge.Option{tc.option}}.run(t)
		row := rows[0]
		if tc.delay > 0 && row.Delay != tc.delay || tc.delay == 0 && !(row.Delay > 5*ms && row.Delay < 20*ms) {
			t.Errorf("%s: delay %v", name, row.Delay)
		}
		if (row.Choice != stats.Choice{}) != tc.choice {
			t.Errorf("%s: choice %+v", name, row.Choice)
		}
		if _, err := json.Marshal(rows); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, rows := simulation{distribution: drawing(testserver.Constant(5*ms), 1), calls: 20_000, concurrency: 10, seed: 1}.run(t)
	if row := rows[0]; row.Choice.PredictedLoad > 0.01 || row.Choice.Delay != row.Delay || row.Choice.MaxHedges != 2 {
		t.Errorf("where there is nothing to gain it says %+v, and the delay is %v", row.Choice, row.Delay)
	}
}

// TestDryRun_ForecastsTheTargetPercentile has the tail that is forecast follow the trigger: p99 unless Auto has another.
func TestDryRun_ForecastsTheTargetPercentile(t *testing.T) {
	longtest.Simulation(t)
	for name, tc := range map[string]struct {
		trigger hedge.Trigger
		want    func(stats.Method) time.Duration
	}{
		"auto":        {hedge.Auto(), func(row stats.Method) time.Duration { return row.P99 }},
		"p90":         {hedge.Percentile(0.9), func(row stats.Method) time.Duration { return row.P99 }},
		"the median":  {hedge.Auto(hedge.TargetPercentile(0.5)), func(row stats.Method) time.Duration { return row.P50 }},
		"the last of": {hedge.Auto(hedge.TargetPercentile(0.5), hedge.TargetPercentile(0.9)), func(row stats.Method) time.Duration { return row.P90 }},
	} {
		_, rows := simulation{distribution: drawing(testserver.Uniform(10*ms, 100*ms), 1), calls: 3000, concurrency: 10, seed: 1,
			options: []hedge.Option{hedge.WithDryRun(true), hedge.WithTrigger(tc.trigger)}}.run(t)
		row := rows[0]
		if len(row.Forecasts) == 0 || !within(row.Forecasts[0].UnhedgedTail, tc.want(row), 0.05) {
			t.Errorf("%s: %v forecast, of p50 %v, p90 %v, p99 %v", name, row.Forecasts, row.P50, row.P90, row.P99)
		}
	}
}

// TestDryRun_WithoutABudget forecasts for a client that is not allowed to hedge at all.
func TestDryRun_WithoutABudget(t *testing.T) {
	longtest.Simulation(t)
	_, rows := simulation{distribution: drawing(straggler(t), 1), calls: 5000, concurrency: 20, seed: 1,
		options: []hedge.Option{hedge.WithDryRun(true), hedge.WithBudgetPercent(0)}}.run(t)
	if len(rows[0].Forecasts) != 4 || rows[0].DryRun != 0 {
		t.Errorf("%d forecasts, %d hedges", len(rows[0].Forecasts), rows[0].DryRun)
	}
}

// TestRule12_UnbudgetedMethodsDoNotPayForOthers lets nine calls in ten go to a method whose hedges are free.
func TestRule12_UnbudgetedMethodsDoNotPayForOthers(t *testing.T) {
	longtest.Simulation(t)
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(ms)), hedge.WithBudgetPercent(400), hedge.WithMethodOptions("/paid.Svc/*", hedge.WithBudgetPercent(10)), hedge.WithServiceConfig(
			`{"methodConfig": [{"name": [{"service": "free.Svc"}], "hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": "0.001s"}}]}`))
		for i := range 5000 {
			name := "/free.Svc/Get"
			if i%10 == 0 {
				name = "/paid.Svc/Get"
			}
			if _, err := hedge.Do(t.Context(), s, target, name, hedgetest.Taking(5*ms)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for _, row := range s.Targets() {
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

// attemptDistribution is how long an attempt takes that is sent at a time; attempt 0 is the primary.
type attemptDistribution = func(id uint64, attempt int, at time.Duration) time.Duration

// ofRequest is a distribution in ms with a part that each attempt of a request has in common, drawn from r, and one of its own, from a.
func ofRequest(draw func(r, a *rand.Rand) float64) attemptDistribution { return ofSeed(1, draw) }

func ofSeed(seed uint64, draw func(r, a *rand.Rand) float64) attemptDistribution {
	return func(id uint64, attempt int, _ time.Duration) time.Duration {
		return inMillis(draw(generator(seed, id, -1), generator(seed, id, attempt)))
	}
}

func inMillis(x float64) time.Duration { return time.Duration(x * float64(ms)) }

// sizes lets the request decide most of the latency; 2% of attempts stall.
var sizes = ofRequest(func(r, a *rand.Rand) float64 {
	d := 5*math.Exp(r.NormFloat64()) + a.ExpFloat64()
	if a.Float64() < 0.02 {
		d += 200
	}
	return d
})

// heavy lets one request in ten be eight times slower on every backend; 2% of attempts stall.
var heavy = ofRequest(func(r, a *rand.Rand) float64 {
	d := 5 * math.Exp(0.45*a.NormFloat64())
	if r.Float64() < 0.10 {
		d *= 8
	}
	if a.Float64() < 0.02 {
		d += 100
	}
	return d
})

// stalls lets one of three backends stand still for a second in every five, in turn; a hedge goes to another.
func stalls(id uint64, attempt int, at time.Duration) time.Duration {
	d := time.Duration(math.Exp(0.5*generator(1, id, attempt).NormFloat64()) * float64(ms))
	backend := (generator(1, id, -2).IntN(3) + attempt) % 3
	if in := at % (5 * time.Second); in < time.Second && backend == int(at/(5*time.Second))%3 {
		d += time.Second - in
	}
	return d
}

// TestAuto_RealTraffic has requests that differ and slow calls that come in bunches, with the whole scheduler. More distributions, and
// more seeds, are in internal/learn.
func TestAuto_RealTraffic(t *testing.T) {
	longtest.Simulation(t)
	type bounds struct {
		name         string
		distribution attemptDistribution
		rate         float64
		bar          float64 // p99 by none's
	}
	for _, tc := range longtest.First(1, []bounds{
		{"sizes", sizes, 500, 0.30},
		{"stalls at 500/s", stalls, 500, 0.05},
		{"heavy", heavy, 500, 0.67},
		{"stalls at 50/s", stalls, 50, 0.05},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			run := func(hedges int) []outcome {
				ended, rows := simulation{distribution: tc.distribution, calls: calls, rate: tc.rate, seed: 1, options: []hedge.Option{hedge.WithMaxHedges(hedges)}}.run(t)
				t.Logf("%+v", rows[0].Choice)
				return ended[warmedUp:]
			}
			hedged := run(2)
			share := float64(tail(hedged, 0.99)) / float64(tail(run(0), 0.99))
			t.Logf("p99 %.3f of none's, load %.2f%%", share, 100*load(hedged))
			if share > tc.bar || load(hedged) > 0.105 {
				t.Errorf("p99 is %.3f of none's at a load of %.2f%%, want at most %v and 10.5%%", share, 100*load(hedged), tc.bar)
			}
		})
	}
}
