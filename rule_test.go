package hedge_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
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
)

func straggler(t testing.TB) testserver.Distribution {
	t.Helper()
	return testserver.DistributionT(t, "straggler")
}

// isHedge reports whether an attempt's context is that of a hedge.
func isHedge(ctx context.Context) bool { return attemptOf(ctx) > 0 }

// TestRule12_WithinTheBudgetAtAnyRate lets every call be slow, as in an outage, and counts the hedges in each ten
// seconds, at rates from one call a second on, with nothing configured but the delay to start with. The bucket's own
// tests go up to 100,000 a second.
func TestRule12_WithinTheBudgetAtAnyRate(t *testing.T) {
	longtest.Simulation(t)
	for _, rate := range []int{1, 10, 1_000} {
		t.Run(fmt.Sprintf("rate=%d", rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := hedgetest.All(t, hedge.WithWarmup(1<<30, 10*ms))
				seconds := max(15, min(300, 4_000/rate))
				var mu sync.Mutex
				began := time.Now()
				perSecond := make([]int, seconds+3)
				var group sync.WaitGroup
				for range rate * seconds {
					time.Sleep(time.Second / time.Duration(rate))
					group.Go(func() {
						_, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) {
							if isHedge(ctx) {
								mu.Lock()
								perSecond[int(time.Since(began)/time.Second)]++
								mu.Unlock()
							}
							return hedgetest.Taking(time.Second)(ctx)
						})
						if err != nil {
							t.Error(err)
						}
					})
				}
				group.Wait()
				burst := math.Max(1, 2*float64(rate)/10)
				total := 0
				for second := range seconds - 10 {
					sent := 0
					for _, n := range perSecond[second : second+10] {
						sent += n
					}
					if most := float64(rate) + burst + 1; float64(sent) > most { // 10% of ten seconds' calls
						t.Errorf("%d hedges in the ten seconds from second %d on, want at most %v", sent, second, most)
					}
				}
				for _, n := range perSecond {
					total += n
				}
				if least := float64(rate*seconds) / 10 * 0.85; float64(total) < least {
					t.Errorf("%d hedges in all, want at least %v: the budget is there to be used", total, least)
				}
				if got := s.Stats(); got.Hedges != int64(total) {
					t.Errorf("%d hedges counted, %d sent", got.Hedges, total)
				}
			})
		})
	}
}

// TestRule13_HedgingDoesNotBiasTheEstimate hedges with ever earlier triggers, which cuts ever more primaries
// short, and compares the estimate with what the primaries would have taken, all of them.
func TestRule13_HedgingDoesNotBiasTheEstimate(t *testing.T) {
	longtest.Simulation(t)
	distribution := straggler(t)
	for _, rate := range longtest.First(2, []float64{0.10, 0.50, 0, 0.05}) {
		t.Run(fmt.Sprintf("hedged=%v", rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := longtest.Size(20_000, 60_000)
				s := hedgetest.All(t, hedge.WithTrigger(hedge.Percentile(1-cmp.Or(rate, 0.5))), hedge.WithBudgetPercent(400*math.Ceil(rate)),
					hedge.WithWindow(time.Hour), hedge.WithMaxHedges(1))
				random := rand.New(rand.NewPCG(13, 13))
				truth := make([]time.Duration, 0, calls)
				for range calls {
					primary, hedged := distribution.Draw(random), distribution.Draw(random)
					truth = append(truth, primary)
					_, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) {
						if isHedge(ctx) {
							return hedgetest.Taking(hedged)(ctx)
						}
						return hedgetest.Taking(primary)(ctx)
					})
					if err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				slices.Sort(truth)
				got := s.Stats()
				t.Logf("hedge rate %.3f, primaries cut short %.3f", got.HedgeRate(), float64(got.HedgeWins)/float64(calls))
				if math.Abs(got.HedgeRate()-rate) > 0.03 {
					t.Errorf("hedge rate %.3f, want %v", got.HedgeRate(), rate)
				}
				for _, q := range []float64{0.50, 0.90, 0.95, 0.99} {
					want := truth[int(q*float64(calls))]
					estimate, ok := s.Latency(target, method, q)
					t.Logf("p%g %v, truth %v: %+.2f%%", q*100, estimate, want, 100*(float64(estimate)/float64(want)-1))
					if q == 0.90 && (!ok || !within(estimate, want, 0.02)) {
						t.Errorf("p90 %v, want %v within 2%%", estimate, want)
					}
				}
			})
		})
	}
}

// TestRule13_WhatTeaches goes through the ways in which a primary ends. Each scheduler sees two calls that take
// 100 ms and then one that ends in its own way after 10 ms: an observation there makes 10 ms the 25% quantile, a
// lower bound leaves 100 ms.
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
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := hedgetest.All(t, hedge.WithMaxHedges(0))
				hedgetest.Call(t, s, target, method, 100*ms)
				hedgetest.Call(t, s, target, method, 100*ms)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := hcall.Begin(registry.Of(s), ctx, target, method, nil)
				time.Sleep(10 * ms)
				if tc.gone {
					cancel()
				}
				if tc.cut {
					hedgetest.CutShort(&c, c.Age())
				} else {
					c.End(hcall.End{Err: tc.err})
				}
				if got, ok := s.Latency(target, method, 0.25); !ok || !within(got, tc.want, 0.01) {
					t.Errorf("p25 %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// TestRule15_TheQuantileIsComputedSeldom records while time stands still: the delay stays until enough is new,
// and follows within a second where time goes on.
func TestRule15_TheQuantileIsComputedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithBudgetPercent(0))
		delays := map[time.Duration]bool{}
		calls := longtest.Size(3_000, 10_000)
		for i := range calls {
			c := hcall.Begin(registry.Of(s), t.Context(), target, method, nil)
			hedgetest.CutShort(&c, c.Age()+time.Duration(i)*time.Microsecond)
			c.End(hcall.End{})
			delays[s.Targets()[0].Delay] = true
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
		if got := s.Targets()[0].Delay; !within(got, 300*ms, 0.03) {
			t.Errorf("delay %v, want 300ms", got)
		}
	})
}

// TestRule18_BookingACallDoesNotAllocate is about a call that is watched and not hedged, whole.
func TestRule18_BookingACallDoesNotAllocate(t *testing.T) {
	s := hedgetest.All(t, hedge.WithMaxHedges(0))
	ctx := t.Context()
	var c hcall.Call // the interceptors take theirs from a pool
	if n := testing.AllocsPerRun(1000, func() {
		c = hcall.Begin(registry.Of(s), ctx, target, method, nil)
		c.End(hcall.End{})
	}); n > 0.5 { // computing the trigger anew allocates, seldom
		t.Errorf("%v allocations", n)
	}
}
