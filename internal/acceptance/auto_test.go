package acceptance_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/stats"
)

const (
	calls    = 20_500
	warmedUp = 500 // calls that are not looked at
	whole    = time.Hour
)

func auto(budgetPercent float64, hedges int) []hedge.Option {
	return with{
		hedge.WithTrigger(hedge.Auto()), hedge.WithBudgetPercent(budgetPercent), hedge.WithMaxHedges(hedges),
	}
}

// course is a client from a seed, and the bounds of its results.
type course struct {
	name    string
	short   bool // it guards every change; the others are of the long tier
	latency func(seed uint64) simulation.Latency
	client  simulation.Client
	budget  float64
	hedges  int // 0: 2
	bounds  []bound
}

// bound is on a figure of the calls that began within a part of the course.
type bound struct {
	what     string
	figure   figure
	from, to time.Duration
	most     float64
}

// figure is of the calls as they went, and as they go without hedging.
type figure func(hedged simulation.Calls, plain func() simulation.Calls) float64

func p(q float64) figure { // in ms
	return func(hedged simulation.Calls, _ func() simulation.Calls) float64 { return millis(hedged.Tail(q)) }
}

func byNone(q float64) figure {
	return func(hedged simulation.Calls, plain func() simulation.Calls) float64 {
		return float64(hedged.Tail(q)) / float64(plain().Tail(q))
	}
}

func load(hedged simulation.Calls, _ func() simulation.Calls) float64 { return 100 * hedged.Load() }

func millis(d time.Duration) float64 { return float64(d) / float64(ms) }

// courses compare the trigger's results with the best possible results, and with the latency
// without hedging. The simulations of internal/trigger have many more distributions and faults.
func courses(t *testing.T) []course {
	const s = time.Second
	closed := simulation.Client{Calls: calls, Concurrency: 20}
	open := func(rate float64, calls int) simulation.Client { return simulation.Client{Calls: calls, Rate: rate} }
	of := func(d testserver.Distribution) func(uint64) simulation.Latency {
		return func(seed uint64) simulation.Latency { return simulation.Drawing(d, seed) }
	}
	distributed := func(name string) func(uint64) simulation.Latency { return of(testserver.DistributionT(t, name)) }
	stragglers := testserver.Straggler(testserver.LogNormal(5*ms, 2*ms), 0.05, 10)
	all := func(what string, f figure, most float64) bound { return bound{what, f, 0, 10 * whole, most} }
	loadOf := func(most float64) bound { return all("load", load, most) }
	return []course{
		// The bounds of percentiles are a little above the result of the best policy of its kind
		// with knowledge of the distribution.
		{name: "straggler", short: true, latency: distributed("straggler"), client: closed, budget: 10,
			bounds: []bound{all("p99", p(0.99), 17.4), loadOf(10),
				{what: "p99.9, after the first hedges were withheld", figure: p(0.999), from: 4 * s, to: whole, most: 28}}},
		{name: "ttft", short: true, latency: distributed("ttft"), client: closed, budget: 30, hedges: 3,
			bounds: []bound{all("p95", p(0.95), 46), all("p99", p(0.99), 75), loadOf(30.5)}},

		// One backend in three stalls for a second in every minute. Between stalls there is nothing
		// to gain, and a trigger that had given up would be of no use when the next one comes.
		{name: "seldom stalls", latency: func(seed uint64) simulation.Latency {
			return func(id uint64, attempt int, at time.Duration) time.Duration {
				random := simulation.Generator(seed, id, attempt)
				d := testserver.Uniform(4*ms, 6*ms).Draw(random)
				if in := at % time.Minute; in < s && random.IntN(3) == 0 {
					d += s - in
				}
				return d
			}
		}, client: open(500, 190*500), budget: 10, bounds: []bound{
			{what: "slow calls by none's", figure: slow, from: 30 * s, to: whole, most: 0.2},
			{what: "load", figure: load, from: 30 * s, to: whole, most: 5}}},

		// Hedging is of no use where all take as long, and where a hedge is no faster than its
		// primary.
		{name: "steady", short: true, latency: of(testserver.LogNormal(20*ms, 200*time.Microsecond)),
			client: simulation.Client{Calls: 80_000, Concurrency: 20}, budget: 10,
			bounds: []bound{{what: "load", figure: load, from: 60 * s, to: whole, most: 1}}},
		{name: "no faster the second time", short: true, latency: func(seed uint64) simulation.Latency {
			return func(id uint64, attempt int, at time.Duration) time.Duration {
				return simulation.Drawing(stragglers, seed)(id, 0, at) + time.Duration(min(attempt, 1))*ms
			}
		}, client: simulation.Client{Calls: 80_000, Concurrency: 20}, budget: 10,
			bounds: []bound{{what: "load", figure: load, from: 22 * s, to: whole, most: 1}}},

		// The request decides most of the latency; 2% of attempts stall.
		{name: "sizes", short: true, latency: func(seed uint64) simulation.Latency {
			return func(id uint64, attempt int, _ time.Duration) time.Duration {
				r, a := simulation.Generator(seed, id, -1), simulation.Generator(seed, id, attempt)
				d := 5*math.Exp(r.NormFloat64()) + a.ExpFloat64()
				if a.Float64() < 0.02 {
					d += 200
				}
				return time.Duration(d * float64(ms))
			}
		}, client: open(500, calls), budget: 10, bounds: []bound{all("p99 by none's", byNone(0.99), 0.30), loadOf(10.5)}},

		// More calls take 30 ms than the budget pays for, and 1% stall. A tenth of the calls, and of the
		// stalled calls, is not drawn.
		{name: "slow calls and stalls", short: true, latency: of(testserver.Mixture(
			testserver.Part{Weight: .89, Distribution: testserver.LogNormal(3*ms, ms)},
			testserver.Part{Weight: .10, Distribution: testserver.LogNormal(33*ms, ms)},
			testserver.Part{Weight: .01, Distribution: testserver.Constant(300 * ms)},
		)), client: open(100, calls), budget: 10, bounds: []bound{all("p99.8", p(0.998), 80), loadOf(10.5)}},

		// Where calls are few the bucket holds a single token, and of two stragglers in a row one has
		// to do without.
		{name: "5ms at 1/s", short: true, latency: of(stragglers), client: open(1, 5000), budget: 10,
			bounds: []bound{all("p99 by none's", byNone(0.99), 0.90), loadOf(10.5)}},
	}
}

// slow is the calls above 100 ms by those without hedging.
func slow(hedged simulation.Calls, plain func() simulation.Calls) float64 {
	count := func(calls simulation.Calls) (n float64) {
		for _, c := range calls {
			n += float64(min(c.Took/(100*ms), 1))
		}
		return n
	}
	return count(hedged) / count(plain())
}

func TestAuto(t *testing.T) {
	longtest.Simulation(t)
	for _, c := range courses(t) {
		if !c.short && !longtest.Long() {
			continue
		}
		t.Run(fmt.Sprintf("%s, budget %v%%", c.name, c.budget), func(t *testing.T) {
			run := func(seed, hedges int) simulation.Calls {
				c.client.Seed, c.client.Latency, c.client.Options = uint64(seed), c.latency(uint64(seed)), auto(c.budget, hedges)
				calls, _ := c.client.Run(t)
				return calls[warmedUp:]
			}
			for seed := range longtest.Size(1, 5) {
				hedged, plain := run(seed+1, cmp.Or(c.hedges, 2)), sync.OnceValue(func() simulation.Calls { return run(seed+1, 0) })
				for _, b := range c.bounds {
					got := b.figure(hedged.Between(b.from, b.to), func() simulation.Calls { return plain().Between(b.from, b.to) })
					t.Logf("seed %d: %s from %v on: %.4g", seed+1, b.what, b.from, got)
					if !(got <= b.most) {
						t.Errorf("seed %d: %s is %.4g from %v to %v, want at most %.4g", seed+1, b.what, got, b.from, b.to, b.most)
					}
				}
			}
		})
	}
}

// TestMethods_ReportsWhatIsInForce covers settings that replace the trigger Auto, and values that
// JSON cannot show.
func TestMethods_ReportsWhatIsInForce(t *testing.T) {
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
			Seed: 1, Options: with{tc.option}}.Run(t)
		_, err := json.Marshal(rows)
		if row := rows[0]; !within(row.Delay, tc.delay, 0.3) || (row.Choice != stats.Choice{}) != tc.choice ||
			tc.choice && row.Choice.Delay != row.Delay || row.Gain != nil || err != nil {
			t.Errorf("%v: %+v, want the delay %v, and a choice: %t", err, row, tc.delay, tc.choice)
		}
	}
}

// TestDryRun_ForecastsP99 compares the tail that is forecast with the measured p99. A client that is
// not allowed to hedge at all has forecasts too. No hedge is sent. TestAuto_AsPredicted of
// internal/trigger compares predictions with clients that hedge.
func TestDryRun_ForecastsP99(t *testing.T) {
	longtest.Simulation(t)
	for _, tc := range []struct {
		trigger hedge.Trigger
		budget  float64
	}{
		{hedge.Auto(), 10},
		{hedge.Auto(), 0},
		{hedge.Percentile(0.9), 10},
	} {
		ended, rows := simulation.Client{Latency: simulation.Drawing(testserver.Uniform(10*ms, 100*ms), 1),
			Calls: 3000, Concurrency: 10, Seed: 1, Options: with{hedge.WithDryRun(true),
				hedge.WithTrigger(tc.trigger), hedge.WithBudgetPercent(tc.budget)}}.Run(t)
		row := rows[0]
		if len(row.Forecasts) != 4 || ended.Hedges()+int(row.Hedges+row.Hedged) > 0 ||
			(row.DryRun == 0) != (tc.budget == 0) || !within(row.Forecasts[0].UnhedgedTail, row.P99, 0.05) {
			t.Errorf("%v, budget %v: %v forecast; %+v", tc.trigger, tc.budget, row.Forecasts, row)
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

// TestControl_BeginsAgain updates a scheduler with a control group: another option begins
// a new comparison, and the same ones leave the figures as they are.
func TestControl_BeginsAgain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		update hedge.Option
		again  bool
	}{
		{"the same", nil, false},
		{"another budget", hedge.WithBudgetPercent(1), true},
		{"another share", hedge.WithControl(40), true},
		{"by a rule", hedge.WithMethodOptions("/s/*", hedge.WithBudgetPercent(1)), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			options := with{hedge.WithAllMethods(), hedge.WithControl(50), hedge.WithTrigger(hedge.Fixed(10 * ms))}
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

// TestControl_IsPlain: a call of the control group is not hedged, nor asked for its class, the
// measured tail comes from the other calls, and the gain tells the groups apart.
func TestControl_IsPlain(t *testing.T) {
	longtest.Simulation(t)
	var asked atomic.Int64
	ended, rows := simulation.Client{
		Latency: simulation.Drawing(testserver.DistributionT(t, "straggler"), 1), Calls: 20_000, Rate: 30,
		Options: with{hedge.WithControl(90),
			hedge.WithClass(func(context.Context, string, any) string { asked.Add(1); return "" })},
	}.Run(t)
	row := rows[0]
	if asked.Load() > 2200 || row.Gain.Calls > 2200 || row.Gain.Control+row.Gain.Calls < 19_900 ||
		float64(ended.Hedges()) > 0.12*2200 {
		t.Errorf("the class function ran for %d calls, %d hedges; %+v", asked.Load(), ended.Hedges(), row.Gain)
	}
	if c := row.Choice; row.Gain.Hedged.Value > 2*c.PredictedTail || c.UnhedgedTail > 0 && c.UnhedgedTail < 3*c.PredictedTail {
		t.Errorf("p99 is %v, predicted %v; without hedging %v", row.Gain.Hedged, c.PredictedTail, c.UnhedgedTail)
	}
	if g := *row.Gain; !g.Measured || !within(g.Unhedged.Value, 64*ms, 0.2) || !within(g.Hedged.Value, 17*ms, 0.3) ||
		g.Saved.Low <= 0 || math.Abs(g.Load-0.08) > 0.03 {
		t.Errorf("the gain is %+v", g)
	}
}

// sentBy makes a call that takes a minute in every attempt, beside calls that fill the budget. It
// returns the ages at which the call's hedges are sent.
func sentBy(t *testing.T, s *hedge.Scheduler, ctx context.Context, method string) (ages []time.Duration) {
	began, sent, filling := time.Now(), make(chan time.Duration, 5), time.NewTicker(100*ms)
	defer filling.Stop()
	ended := make(chan error)
	go func() {
		_, err := hedge.Do(ctx, s, target, method, func(ctx context.Context) (int, error) {
			sent <- time.Since(began)
			return hedgetest.Taking(time.Minute)(ctx)
		})
		ended <- err
	}()
	for {
		select {
		case <-filling.C:
			hedgetest.Call(t, s, target, "/filling/Call", 0)
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			close(sent)
			<-sent // the primary
			for age := range sent {
				ages = append(ages, age)
			}
			return ages
		}
	}
}

// TestAuto_NoLaterThan has a call with slow attempts follow others. Hedge n is sent at n times two
// seconds at the latest, and some hedge later than that, or never, without the option.
func TestAuto_NoLaterThan(t *testing.T) {
	const d, method = 2 * time.Second, "/pkg.Svc/Get"
	auto := func(opts ...hedge.AutoOption) hedge.Option { return hedge.WithTrigger(hedge.Auto(opts...)) }
	for _, tc := range []struct {
		name    string
		latency func(n int) time.Duration // of all attempts of the n-th call
		hedge   time.Duration             // latency of hedges; 0: their primary's
		calls   int
		every   time.Duration // between calls; 0: each begins when the one before has ended
		opts    []hedge.Option
	}{
		{name: "the first call"},
		{name: "a delay of the warm-up", opts: with{hedge.WithWarmup(20, 5*time.Second)}},
		{name: "a minimum", calls: 50, opts: with{hedge.WithMinDelay(5 * time.Second)},
			latency: func(int) time.Duration { return 10 * ms }},
		{name: "before a choice", calls: 50,
			latency: func(n int) time.Duration { return time.Duration(1+n%5) * time.Second }},
		// In one second, since measured calls fade, and useless hedges are tried again after minutes.
		{name: "hedges that save nothing", calls: 1000, every: ms,
			latency: func(n int) time.Duration { return ms + time.Duration(n%10/8)*10*time.Second }},
		{name: "a budget for few of the calls", calls: 1000, opts: with{hedge.WithBudgetPercent(1)},
			latency: func(n int) time.Duration { return 100*ms + time.Duration(n%10/9)*3*time.Second }},
		{name: "a second hedge would be too late", calls: 1000, opts: with{hedge.WithMaxHedges(2)},
			latency: func(n int) time.Duration { return time.Second + time.Duration(n%10/9)*1900*ms }, hedge: time.Second},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			sent := func(auto hedge.Option) (late int) {
				opts := append(with{hedge.WithAllMethods(), auto, hedge.WithBudgetPercent(400)}, tc.opts...)
				s := hedgetest.New(t, opts...)
				var calls sync.WaitGroup
				for n := range tc.calls {
					calls.Go(func() {
						var attempts atomic.Int64
						_, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) {
							if attempts.Add(1) > 1 && tc.hedge > 0 {
								return hedgetest.Taking(tc.hedge)(ctx)
							}
							return hedgetest.Taking(tc.latency(n))(ctx)
						})
						if err != nil {
							t.Error(err)
						}
					})
					if time.Sleep(tc.every); tc.every == 0 {
						calls.Wait()
					}
				}
				calls.Wait()
				if err := s.Update(append(opts, hedge.WithBudgetPercent(400))...); err != nil { // to pay for every hedge below
					t.Error(err)
				}
				var group sync.WaitGroup
				var all [3][]time.Duration // of calls under one estimate; some are drawn
				for i := range all {
					group.Go(func() { all[i] = sentBy(t, s, t.Context(), method) })
				}
				group.Wait()
				for _, ages := range all {
					for n := range 2 {
						if n >= len(ages) || ages[n] > time.Duration(n+1)*d {
							late++
						}
					}
				}
				return late
			}
			if bounded, without := sent(auto(hedge.NoLaterThan(d))), sent(auto()); bounded > 0 || without == 0 {
				t.Errorf("%d of 6 hedges are sent too late, and %d without NoLaterThan; want none and some", bounded, without)
			}
		})
	}
}

// TestAuto_NoLaterThanElsewhere has the bound follow an update and a method's rule, and leave After
// and a dry budget as they are.
func TestAuto_NoLaterThanElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		latest := func(d time.Duration) hedge.Option { return hedge.WithTrigger(hedge.Auto(hedge.NoLaterThan(d))) }
		s := hedgetest.All(t, latest(2*time.Second), hedge.WithBudgetPercent(400))
		want := func(name string, ctx context.Context, method string, want ...time.Duration) {
			t.Helper()
			if got := sentBy(t, s, ctx, method); len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
				t.Errorf("%s: hedges are sent at %v, want %v", name, got, want)
			}
		}
		want("New", t.Context(), "/s/A", 2*time.Second, 4*time.Second)
		if err := s.Update(hedge.WithAllMethods(), latest(3*time.Second), hedge.WithBudgetPercent(400),
			hedge.WithMethodOptions("/s/B", latest(time.Second)), hedge.WithMethodOptions("/s/C", hedge.WithBudgetPercent(0)),
		); err != nil {
			t.Fatal(err)
		}
		want("Update", t.Context(), "/s/A", 3*time.Second, 6*time.Second)
		want("a method's rule", t.Context(), "/s/B", time.Second, 2*time.Second)
		want("no budget", t.Context(), "/s/C")
		want("After", hedge.NewContext(t.Context(), hedge.After(5*time.Second)), "/s/A", 5*time.Second, 10*time.Second)
	})
}

// TestDryRun_NoLaterThan has calls that take long on every server. A dry run counts the calls that are
// older than the bound, and forecasts their load.
func TestDryRun_NoLaterThan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithDryRun(true), hedge.WithTrigger(hedge.Auto(hedge.NoLaterThan(15*ms))))
		for n := range 1000 {
			hedgetest.Call(t, s, target, "/s/M", 10*ms+time.Duration(n%20/19)*10*ms) // one in 20 is older
			time.Sleep(ms)
		}
		synctest.Wait()
		m := s.Methods()[0]
		if forecast := (stats.Forecast{}); len(m.Forecasts) == 4 {
			forecast = m.Forecasts[2]
			if m.DryRun < 45 || forecast.Delay > 15*ms || forecast.Load < .04 {
				t.Errorf("%d calls would be hedged, want 50; the forecast is %+v", m.DryRun, forecast)
			}
		} else {
			t.Errorf("%d forecasts, want 4", len(m.Forecasts))
		}
	})
}

// law is the latency of an attempt at a provider, at a time since its hour began, and whether it fails.
type law func(r *rand.Rand, at time.Duration) (took time.Duration, fails bool)

// incidents are an hour of a provider with a median of 600 ms: a brown-out, fast failures, slow starts
// and a stall.
func incidents(r *rand.Rand, at time.Duration) (took time.Duration, fails bool) {
	took, _ = healthy(r, at)
	u := r.Float64()
	switch at %= time.Hour; {
	case at < 6*time.Minute && u < .3:
		took *= 12
	case at > 10*time.Minute && at < 14*time.Minute && u < .6:
		return 50 * ms, true
	case at > 18*time.Minute && at < 24*time.Minute && u < .2:
		took += 10 * time.Second
	case at > 28*time.Minute && at < 29*time.Minute && u < .4:
		took = 20 * time.Second
	}
	return took, false
}

func healthy(r *rand.Rand, _ time.Duration) (time.Duration, bool) {
	return time.Duration(600 * float64(ms) * math.Exp(.4*r.NormFloat64())), false
}

// asked makes calls to provider a, with hedges to b unless it is nil, and returns p99, the share of
// calls that failed, and the extra attempts a call, both in percent. Failures are retried outside, up
// to the given number of times.
func asked(t *testing.T, rate float64, lasts time.Duration, a, b law, retries int, opts ...hedge.Option,
) (p99 time.Duration, failed, load float64) {
	synctest.Test(t, func(t *testing.T) {
		s, began := hedgetest.All(t, opts...), time.Now()
		calls := simulation.Client{Rate: rate, Lasts: lasts, Seed: 1}.Through(t,
			func(ctx context.Context, id uint64) (err error) {
				ask := func(l law, which int) func(context.Context) (int, error) {
					return func(ctx context.Context) (int, error) {
						r := simulation.Generator(1, id, 10*which+simulation.AttemptOf(ctx))
						took, fails := l(r, time.Since(began)+time.Duration(which)*30*time.Minute)
						if n, err := hedgetest.Taking(took)(ctx); err != nil || !fails {
							return n, err
						}
						return 0, status.Error(codes.Unavailable, "down")
					}
				}
				for n := range retries + 1 {
					var hedges []func(context.Context) (int, error)
					if b != nil {
						hedges = append(hedges, ask(b, 1))
					}
					if _, err = hedge.Do(ctx, s, "llm", "/llm/Chat", ask(a, 2*n), hedges...); err == nil {
						return nil
					}
				}
				return err
			})
		synctest.Wait()
		st := s.Stats()
		p99, failed = calls.Tail(.99), calls.Failed()
		load = 100 * (float64(st.Calls+st.Hedges)/float64(len(calls)) - 1)
	})
	return p99, failed, load
}

// TestNoLaterThan_TwoProviders compares destinations, failover and NoLaterThan(2s), at budgets of 10, 100
// and 400%, with the alternatives for one provider.
func TestNoLaterThan_TwoProviders(t *testing.T) {
	longtest.Simulation(t)
	lasts := time.Duration(longtest.Size(1, 8)) * time.Hour
	show := func(name string, p99 time.Duration, failed, load float64) {
		t.Logf("%-34s p99 %6.2f s, failed %5.2f%%, load %5.1f%%", name, p99.Seconds(), failed, load)
	}
	row := func(name string, b law, retries int, opts ...hedge.Option) (time.Duration, float64, float64) {
		p99, failed, load := asked(t, 2, lasts, incidents, b, retries, opts...)
		show(name, p99, failed, load)
		return p99, failed, load
	}
	row("plain", nil, 0, hedge.WithOff(true))
	row("plain, two retries", nil, 2, hedge.WithOff(true))
	today, failedToday, _ := row("default", nil, 0)
	row("Fixed(2s), 400%", nil, 0, hedge.WithTrigger(hedge.Fixed(2*time.Second)), hedge.WithBudgetPercent(400))
	row("Fixed(2s), 400%, two retries", nil, 2, hedge.WithTrigger(hedge.Fixed(2*time.Second)),
		hedge.WithBudgetPercent(400))
	for _, budget := range []float64{10, 100, 400} {
		p99, failed, load := row(fmt.Sprintf("elsewhere, NoLaterThan(2s), %v%%", budget), incidents, 0, hedge.WithFailover(),
			hedge.WithTrigger(hedge.Auto(hedge.NoLaterThan(2*time.Second))), hedge.WithBudgetPercent(budget))
		paid := budget >= 100 // for all
		if load > budget+1 || failed > failedToday ||
			paid && (float64(p99) > .22*float64(today) || failed > .02 || load > 23) {
			t.Errorf("a budget of %v%%: p99 %v of %v, %.2f%% failed, load %.1f%%", budget, p99, today, failed, load)
		}
	}
}

// TestFailover_Outages has an outage in the last five of ten minutes: of one of three backends of the
// primaries' destination, of all three, or of the hedges' destination too. A budget rescues its share of the
// calls, and sends no more.
func TestFailover_Outages(t *testing.T) {
	longtest.Simulation(t)
	const rate, lasts = 20, 5 * time.Minute
	run := func(primaries, hedges, budget float64) (failed, load float64) { // shares of attempts that fail
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t, hedge.WithFailover(), hedge.WithBudgetPercent(budget), hedge.WithOff(budget == 0))
			var calls, errs, sent atomic.Int64
			began := time.Now()
			simulation.Client{Rate: rate, Lasts: 2 * lasts, Seed: 1}.Through(t, func(ctx context.Context, id uint64) error {
				out := time.Since(began) >= lasts
				ask := func(which int, fail float64) func(context.Context) (int, error) {
					return func(ctx context.Context) (int, error) {
						r := simulation.Generator(1, id, 10*which+simulation.AttemptOf(ctx))
						if out {
							sent.Add(1)
						}
						if out && r.Float64() < fail {
							return 0, status.Error(codes.Unavailable, "down")
						}
						took, _ := healthy(r, 0)
						return hedgetest.Taking(took)(ctx)
					}
				}
				_, err := hedge.Do(ctx, s, "a", "/s/M", ask(0, primaries), ask(1, hedges))
				if out {
					calls.Add(1)
				}
				if out && err != nil {
					errs.Add(1)
				}
				return err
			})
			synctest.Wait()
			n := float64(calls.Load())
			failed, load = 100*float64(errs.Load())/n, 100*(float64(sent.Load())/n-1)
		})
		return failed, load
	}
	for _, o := range []struct {
		name              string
		primaries, hedges float64
	}{
		{name: "one of three backends", primaries: 1. / 3},
		{name: "one destination", primaries: 1},
		{name: "both destinations", primaries: 1, hedges: 1},
	} {
		before, _ := run(o.primaries, o.hedges, 0)
		line := fmt.Sprintf("%-21s | %.1f%%", o.name, before)
		for _, budget := range []float64{10, 20, 50, 100} {
			failed, load := run(o.primaries, o.hedges, budget)
			line += fmt.Sprintf(" | %.1f%%, +%.1f%%", failed, load)
			if load > budget+1 || o.hedges == 0 && failed > max(before-budget, 0)+1 {
				t.Errorf("%s: of %.1f%% failed calls a budget of %v%% leaves %.1f%%, with %.1f%% of load", o.name, before, budget,
					failed, load)
			}
		}
		t.Log(line)
	}
}
