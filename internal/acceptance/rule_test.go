package acceptance_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

func straggler(t testing.TB) testserver.Distribution {
	t.Helper()
	return testserver.DistributionT(t, "straggler")
}

// isHedge reports whether ctx is the context of a hedge.
func isHedge(ctx context.Context) bool { return simulation.AttemptOf(ctx) > 0 }

// TestRule13_WhatTeaches goes through the ways in which a primary ends. Each scheduler sees two
// calls that take 100 ms and then one that ends in its own way after 10 ms: an observation there
// makes 10 ms the 25% quantile, a lower bound leaves 100 ms.
func TestRule13_WhatTeaches(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		gone bool // the caller gave up
		cut  bool // a hedge won
		want time.Duration
	}{
		{name: "OK", want: 10 * ms},
		{name: "an answer that is an error", err: status.Error(codes.NotFound, ""), want: 10 * ms},
		{name: "a fast failure", err: status.Error(codes.Unavailable, ""), want: 100 * ms},
		{name: "an error without a status", err: errors.New("no status"), want: 100 * ms},
		{name: "the caller gave up", err: status.Error(codes.Canceled, ""), gone: true, want: 100 * ms},
		{name: "answered as the caller gave up", gone: true, want: 10 * ms},
		{name: "a hedge won", cut: true, want: 100 * ms},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.All(t, hedge.WithMaxHedges(0))
			hedgetest.Call(t, s, target, method, 100*ms)
			hedgetest.Call(t, s, target, method, 100*ms)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := hcall.Begin((*registry.Registry)(s), ctx, target, method, nil)
			time.Sleep(10 * ms)
			if tc.gone {
				cancel()
			}
			if tc.cut {
				hedgetest.CutShort(&c, c.Age())
			} else {
				c.End(hcall.Ending{Err: tc.err})
			}
			if got, ok := s.Latency(target, method, 0.25); !ok || !within(got, tc.want, 0.01) {
				t.Errorf("p25 %v, want %v", got, tc.want)
			}
		})
	}
}

// TestRule15_TheQuantileIsComputedSeldom records at a fixed time: the delay stays until there are
// enough new calls, and follows within a second once the time advances.
func TestRule15_TheQuantileIsComputedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithBudgetPercent(0))
		delays := map[time.Duration]bool{}
		calls := longtest.Size(3_000, 10_000)
		for i := range calls {
			c := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, nil)
			hedgetest.CutShort(&c, c.Age()+time.Duration(i)*time.Microsecond)
			c.End(hcall.Ending{})
			delays[s.Methods()[0].Delay] = true
		}
		if len(delays) > 60 {
			t.Errorf("%d different delays in %d calls", len(delays), calls)
		}
		time.Sleep(time.Minute)
		for range 5 {
			hedgetest.Call(t, s, target, method, 300*ms)
			time.Sleep(time.Second)
		}
		hedgetest.Call(t, s, target, method, 300*ms)
		if got := s.Methods()[0].Delay; !within(got, 300*ms, 0.03) {
			t.Errorf("delay %v, want 300ms", got)
		}
	})
}

// Learning under another configuration does not move the hedges of a call in flight; learning under
// the call's own does.
func TestRule20_ACallInFlightKeepsItsDelay(t *testing.T) {
	half := hedge.WithTrigger(hedge.Percentile(0.5))
	for _, tc := range []struct {
		name   string
		update []hedge.Option // nil: none
		want   time.Duration
	}{
		{"another floor", []hedge.Option{half, hedge.WithMinDelay(40 * ms)}, 10 * ms},
		{"another percentile", []hedge.Option{hedge.WithTrigger(hedge.Percentile(0.99))}, 10 * ms},
		{"the same options", []hedge.Option{half, hedge.WithMaxHedges(1)}, 60 * ms},
		{"no update", nil, 60 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t, half, hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400))
			for range 40 {
				hedgetest.Call(t, s, target, method, 10*ms)
			}
			var others sync.WaitGroup
			others.Go(func() {
				time.Sleep(5 * ms)
				if tc.update != nil {
					hedgetest.Update(t, s, append(tc.update, hedge.WithAllMethods(), hedge.WithBudgetPercent(400))...)
				}
				for range 60 { // which teach that calls take 60 ms
					c := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, nil)
					c.End(hcall.Ending{Age: 60 * ms})
				}
			})
			began := time.Now()
			var at atomic.Int64
			_, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) {
				if isHedge(ctx) {
					at.Store(int64(time.Since(began)))
				}
				return hedgetest.Taking(200 * ms)(ctx)
			})
			others.Wait()
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Duration(at.Load()); !within(got, tc.want, 0.03) {
				t.Errorf("%s: the hedge was sent at %v, want %v", tc.name, got, tc.want)
			}
		})
	}
}

// A class of requests that a call in flight is the first of learns under the configuration in
// force, and not under the call's.
func TestRule20_AClassOfACallInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		classes := hedge.WithClass(func(context.Context, string, any) string { return "c" })
		s := hedgetest.All(t, classes, hedge.WithTrigger(hedge.Percentile(0.5)))
		inFlight := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, nil)
		hedgetest.Update(t, s, hedge.WithAllMethods(), classes, hedge.WithTrigger(hedge.Percentile(0.9)))
		hedgetest.Call(t, s, target, "/pkg.Svc/Other", ms)
		next := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, nil)
		inFlight.Inspect(nil, nil, nil)
		next.End(hcall.Ending{})
		inFlight.End(hcall.Ending{})
		for i := range 100 {
			c := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, nil)
			c.Inspect(nil, nil, nil)
			c.End(hcall.Ending{Age: time.Duration(1+i%10) * 10 * ms})
			time.Sleep(time.Second)
		}
		for _, row := range s.Methods() {
			if row.Method == method && (len(row.Classes) != 1 || !within(row.Classes[0].Delay, 90*ms, 0.05)) {
				t.Errorf("classes %+v, want one with a delay of 90ms", row.Classes)
			}
		}
	})
}

// Calls in flight keep their hedges when an update switches hedging off, in whatever way. Calls
// that begin afterwards have none.
func TestRule20_CallsInFlightKeepTheirHedges(t *testing.T) {
	const calls = 20
	fixed := hedge.WithTrigger(hedge.Fixed(10 * ms))
	ruled := func(opt hedge.Option) []hedge.Option {
		return []hedge.Option{fixed, hedge.WithMethodOptions(method, opt)}
	}
	share := func(p float64) []hedge.Option { return []hedge.Option{fixed, hedge.WithBudgetPercent(p)} }
	for _, tc := range []struct {
		name   string
		first  []hedge.Option
		update []hedge.Option
		later  bool // a call that begins later has a hedge
	}{
		{"no update", share(100), nil, true},
		{"WithMaxHedges(0)", share(100), []hedge.Option{fixed, hedge.WithMaxHedges(0)}, false},
		{"WithOff", share(100), ruled(hedge.WithOff(true)), false},
		{"WithBudgetPercent(0)", share(100), share(0), false},
		{"WithBudgetPercent(0) for the target", share(100),
			[]hedge.Option{fixed, hedge.WithTargetOptions(target, hedge.WithBudgetPercent(0))}, false},
		{"WithBudgetPercent(0) for the method", append(ruled(hedge.WithBudgetPercent(100)), hedge.WithBudgetPercent(100)),
			append(ruled(hedge.WithBudgetPercent(0)), hedge.WithBudgetPercent(100)), false},
		{"WithBudgetPercent(0), but not for the method",
			append(ruled(hedge.WithBudgetPercent(100)), hedge.WithBudgetPercent(100)),
			append(ruled(hedge.WithBudgetPercent(100)), hedge.WithBudgetPercent(0)), false},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.All(t, append(tc.first, hedge.WithMaxHedges(1))...)
			var inFlight sync.WaitGroup
			for range calls {
				inFlight.Go(func() { hedgetest.Call(t, s, target, method, 200*ms) })
			}
			time.Sleep(5 * ms)
			if tc.update != nil {
				hedgetest.Update(t, s, append(tc.update, hedge.WithAllMethods())...)
			}
			hedgetest.Call(t, s, target, method, ms) // so that the update has reached the method
			inFlight.Wait()
			if got := s.Stats().Hedges; got != calls {
				t.Errorf("%d calls in flight had %d hedges", calls, got)
			}
			hedgetest.Call(t, s, target, method, 200*ms)
			if got := s.Stats().Hedges > calls; got != tc.later {
				t.Errorf("a later call had a hedge: %v, want %v", got, tc.later)
			}
		})
	}
}

// A call ends by the options that were in force when it began, though an update replaces them
// before any attempt has ended: which statuses end it, which answers are accepted, whether a hedge
// may answer with an error. And it asks the functions of these options.
func TestRule20_ACallInFlightKeepsItsOptions(t *testing.T) {
	const primary, hedged = 30 * ms, 40 * ms // the hedge is sent after 10 ms
	with := func(opts ...hedge.Option) []hedge.Option {
		return append(opts, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400))
	}
	accepting := func(good string) hedge.Option {
		return hedge.WithAcceptable(func(_ context.Context, _ string, reply any, _ error) bool { return reply == good })
	}
	unavailable, notFound := status.Error(codes.Unavailable, ""), status.Error(codes.NotFound, "")
	all := hedge.WithAllMethods()
	for _, tc := range []struct {
		name        string
		first, then []hedge.Option
		ends        [2]error // of the primary and the hedge
		want        string
	}{
		{"a status that does not end it", with(all, hedge.WithNonFatalCodes(codes.Unavailable)),
			with(all, hedge.WithNonFatalCodes(codes.Aborted)), [2]error{unavailable, nil}, "hedge"},
		{"a status that ends it", with(all, hedge.WithNonFatalCodes(codes.Aborted)),
			with(all, hedge.WithNonFatalCodes(codes.Unavailable)), [2]error{unavailable, nil}, "Unavailable"},
		{"an answer that is accepted", with(all, accepting("primary")), with(all, accepting("hedge")), [2]error{}, "primary"},
		{"an answer that is not accepted", with(all, accepting("hedge")), with(all, accepting("primary")),
			[2]error{}, "hedge"},
		{"a status that is not accepted", with(all, accepting("hedge")),
			with(all, accepting("hedge"), hedge.WithNonFatalCodes(codes.NotFound)), [2]error{notFound, nil}, "hedge"},
		{"a hedge's error that answers", with(hedge.WithReadOnlyMethods(method)),
			with(hedge.WithMethods(method)), [2]error{nil, notFound}, "NotFound"},
		{"a hedge's error that does not", with(hedge.WithMethods(method)),
			with(hedge.WithReadOnlyMethods(method)), [2]error{nil, notFound}, "primary"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.New(t, tc.first...)
			took := [2]time.Duration{primary, hedged}
			if tc.ends[1] != nil {
				took[1] = 5 * ms // it is the first to end
			}
			got, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (string, error) {
				n := simulation.AttemptOf(ctx)
				if n == 0 {
					hedgetest.Update(t, s, tc.then...)
				}
				if _, err := hedgetest.Taking(took[n])(ctx); err != nil {
					return "", err
				}
				return []string{"primary", "hedge"}[n], tc.ends[n]
			})
			if err != nil {
				got = status.Code(err).String()
			}
			if got != tc.want {
				t.Errorf("%s: the call ended with %q, want %q", tc.name, got, tc.want)
			}
		})
	}
	var asked string
	asking := func(name string) []hedge.Option {
		return with(all,
			hedge.WithClass(func(context.Context, string, any) string { asked += name + "'s class "; return "c" }),
			hedge.WithCost(func(context.Context, string, any) float64 { asked += name + "'s cost "; return 1 }))
	}
	s := hedgetest.New(t, asking("the first")...)
	c := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, nil)
	hedgetest.Update(t, s, asking("the second")...)
	c.Inspect(nil, nil, nil)
	c.End(hcall.Ending{})
	if asked != "the first's class the first's cost " {
		t.Errorf("asked were %s", asked)
	}
}
