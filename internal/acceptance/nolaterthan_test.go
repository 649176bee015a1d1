package acceptance_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

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
		{name: "a delay of the warm-up", opts: []hedge.Option{hedge.WithWarmup(20, 5*time.Second)}},
		{name: "a minimum", calls: 50, opts: []hedge.Option{hedge.WithMinDelay(5 * time.Second)},
			latency: func(int) time.Duration { return 10 * ms }},
		{name: "before a choice", calls: 50,
			latency: func(n int) time.Duration { return time.Duration(1+n%5) * time.Second }},
		// In one second, since measured calls fade, and useless hedges are tried again after minutes.
		{name: "hedges that save nothing", calls: 1000, every: ms,
			latency: func(n int) time.Duration { return ms + time.Duration(n%10/8)*10*time.Second }},
		{name: "a budget for few of the calls", calls: 1000, opts: []hedge.Option{hedge.WithBudgetPercent(1)},
			latency: func(n int) time.Duration { return 100*ms + time.Duration(n%10/9)*3*time.Second }},
		{name: "a second hedge would be too late", calls: 1000, opts: []hedge.Option{hedge.WithMaxHedges(2)},
			latency: func(n int) time.Duration { return time.Second + time.Duration(n%10/9)*1900*ms }, hedge: time.Second},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			sent := func(auto hedge.Option) (late int) {
				opts := append([]hedge.Option{hedge.WithAllMethods(), auto, hedge.WithBudgetPercent(400)}, tc.opts...)
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
			if with, without := sent(auto(hedge.NoLaterThan(d))), sent(auto()); with > 0 || without == 0 {
				t.Errorf("%d of 6 hedges are sent too late, and %d without NoLaterThan; want none and some", with, without)
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
