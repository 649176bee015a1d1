package acceptance_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/stats"
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
// enough new calls.
func TestRule15_TheQuantileIsComputedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithBudgetPercent(0))
		delays := map[time.Duration]bool{}
		for i := range 3_000 {
			c := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, nil)
			hedgetest.CutShort(&c, time.Duration(i)*time.Microsecond)
			c.End(hcall.Ending{})
			delays[s.Methods()[0].Delay] = true
		}
		if len(delays) > 60 {
			t.Errorf("%d different delays in 3,000 calls", len(delays))
		}
	})
}

// Learning under another configuration does not move the hedges of a call in flight; learning under
// the call's own does.
func TestRule20_ACallInFlightKeepsItsDelay(t *testing.T) {
	half := hedge.WithTrigger(hedge.Percentile(0.5))
	for want, update := range map[time.Duration]hedge.Option{
		10 * ms: hedge.WithTrigger(hedge.Percentile(0.99)), 60 * ms: half} {
		synctest.Test(t, func(t *testing.T) {
			var at time.Duration
			opts := []hedge.Option{hedge.WithAllMethods(), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400)}
			s := hedgetest.New(t, append(opts, half,
				hedge.WithTrace(&hedge.Trace{HedgeSent: func(e stats.HedgeSent) { at = e.Age }}))...)
			for range 40 {
				hedgetest.Call(t, s, target, method, 10*ms)
			}
			time.AfterFunc(5*ms, func() {
				hedgetest.Update(t, s, append(opts, update)...)
				for range 60 { // which teach that calls take 60 ms
					c := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, nil)
					c.End(hcall.Ending{Age: 60 * ms})
				}
			})
			hedgetest.Call(t, s, target, method, 200*ms)
			if !within(at, want, 0.03) {
				t.Errorf("the hedge was sent at %v, want %v", at, want)
			}
		})
	}
}

// Calls in flight keep their hedges when an update switches hedging off, in whatever way. Calls
// that begin afterwards have none.
func TestRule20_CallsInFlightKeepTheirHedges(t *testing.T) {
	const calls = 20
	budget := hedge.WithBudgetPercent
	of := func(opt hedge.Option) hedge.Option { return hedge.WithMethodOptions(method, opt) }
	for _, tc := range []struct {
		name          string
		first, update []hedge.Option
	}{
		{"WithMaxHedges(0)", nil, []hedge.Option{hedge.WithMaxHedges(0)}},
		{"WithOff", nil, []hedge.Option{of(hedge.WithOff(true))}},
		{"WithBudgetPercent(0)", nil, []hedge.Option{budget(0)}},
		{"WithBudgetPercent(0) for the method", []hedge.Option{of(budget(100))}, []hedge.Option{of(budget(0))}},
		{"WithBudgetPercent(0), but not for the method", []hedge.Option{of(budget(100))},
			[]hedge.Option{of(budget(100)), budget(0)}},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			opts := []hedge.Option{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(10 * ms)), budget(100),
				hedge.WithMaxHedges(1)}
			s := hedgetest.New(t, append(opts, tc.first...)...)
			var inFlight sync.WaitGroup
			for range calls {
				inFlight.Go(func() { hedgetest.Call(t, s, target, method, 200*ms) })
			}
			time.Sleep(5 * ms)
			hedgetest.Update(t, s, append(opts, tc.update...)...)
			hedgetest.Call(t, s, target, method, ms) // so that the update has reached the method
			inFlight.Wait()
			inTime := s.Stats().Hedges
			if later := hedgesOf(t, s, t.Context(), target, method); inTime != calls || later != 0 {
				t.Errorf("%d calls in flight had %d hedges, and a later one %d", calls, inTime, later)
			}
		})
	}
}

// A call ends by the options that were in force when it began, though an update replaces them
// before any attempt has ended: which statuses end it, which answers are accepted, whether a hedge
// may answer with an error. And it asks the functions of these options.
func TestRule20_ACallInFlightKeepsItsOptions(t *testing.T) {
	accepting := func(good string) hedge.Option {
		return hedge.WithAcceptable(func(_ context.Context, _ string, reply any, _ error) bool { return reply == good })
	}
	unavailable, notFound := status.Error(codes.Unavailable, ""), status.Error(codes.NotFound, "")
	nonFatal, aborted := hedge.WithNonFatalCodes(codes.Unavailable), hedge.WithNonFatalCodes(codes.Aborted)
	reads, writes := hedge.WithReadOnlyMethods(method), hedge.WithMethods(method)
	for _, tc := range []struct {
		name         string
		first, then  hedge.Option
		primary, end error // of the primary, and of the hedge
		want         string
	}{
		{"a status that does not end it", nonFatal, aborted, unavailable, nil, "hedge"},
		{"a status that ends it", aborted, nonFatal, unavailable, nil, "Unavailable"},
		{"an answer that is accepted", accepting("primary"), accepting("hedge"), nil, nil, "primary"},
		{"an answer that is not accepted", accepting("hedge"), accepting("primary"), nil, nil, "hedge"},
		{"a hedge's error that answers", reads, writes, nil, notFound, "NotFound"},
		{"a hedge's error that does not", writes, reads, nil, notFound, "primary"},
	} {
		synctest.Test(t, func(t *testing.T) {
			with := func(opt hedge.Option) []hedge.Option {
				return []hedge.Option{writes, opt, hedge.WithTrigger(hedge.Fixed(10 * ms)), hedge.WithMaxHedges(1),
					hedge.WithBudgetPercent(400)}
			}
			s := hedgetest.New(t, with(tc.first)...)
			took := [2]time.Duration{30 * ms, 40 * ms}
			if tc.end != nil {
				took[1] = 5 * ms // it is the first to end
			}
			got, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (string, error) {
				n := simulation.AttemptOf(ctx)
				if n == 0 {
					hedgetest.Update(t, s, with(tc.then)...)
				}
				if _, err := hedgetest.Taking(took[n])(ctx); err != nil {
					return "", err
				}
				return []string{"primary", "hedge"}[n], []error{tc.primary, tc.end}[n]
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
		return []hedge.Option{writes,
			hedge.WithClass(func(context.Context, string, any) string { asked += name + "'s class "; return "c" }),
			hedge.WithCost(func(context.Context, string, any) float64 { asked += name + "'s cost "; return 1 })}
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
