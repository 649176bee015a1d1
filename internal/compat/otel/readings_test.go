package otel_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// read is what docs/observability.md reads from single metrics: the extra load, the share of hedged
// calls that a hedge answered, hedges without a budget per hedge that was sent, and the tails in
// ms.
type read struct{ load, won, noBudget, saved, predicted, measured, unhedged float64 }

// TestReadings checks the readings, each in a world in which the answer is known. An attempt takes
// a latency drawn for it, or for its request.
func TestReadings(t *testing.T) {
	straggler := testserver.DistributionT(t, "straggler")
	own := func(r *rand.Rand, _ time.Duration) time.Duration { return straggler.Draw(r) }
	request := func(_ *rand.Rand, request time.Duration) time.Duration { return request }
	var ten, two read
	for _, tc := range []struct {
		name    string
		takes   func(r *rand.Rand, request time.Duration) time.Duration
		options []hedge.Option
		is      func(r read) bool
	}{
		{"stragglers", own, nil, func(r read) bool {
			ten = r
			return r.load <= 0.10 && r.won > 0.33 && r.won < 0.8 && r.noBudget < 0.1 && r.saved > 0.2 &&
				r.measured < 1.2*r.predicted && r.unhedged > r.measured
		}},
		{"stragglers, and a smaller budget", own, []hedge.Option{hedge.WithBudgetPercent(2)}, func(r read) bool {
			two = r // more would help, and no_budget does not show it
			return r.load <= 0.02 && r.won > 0.33 && r.won < 0.8 && r.noBudget < 0.1 && two.measured > 3*ten.measured
		}},
		{"slow requests", request, nil, func(r read) bool { return r.won < 0.05 && r.saved < 0.05 && r.load < ten.load/2 }},
		{"slow requests, after a percentile", request, []hedge.Option{hedge.WithTrigger(hedge.Percentile(0.95))},
			func(r read) bool {
				return r.won < 0.05 && r.noBudget < 1
			}},
		{"all calls are slow", func(r *rand.Rand, _ time.Duration) time.Duration { return 100*ms + straggler.Draw(r) },
			[]hedge.Option{hedge.WithTrigger(hedge.Fixed(20 * ms))}, func(r read) bool {
				return r.load <= 0.101 && r.noBudget > 5 && r.won < 0.05
			}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBackend(t)
			s := hedgetest.All(t, append(tc.options, b.telemetry(t))...)
			var group sync.WaitGroup
			for id := range 20_000 {
				time.Sleep(10 * ms)
				group.Go(func() {
					r, mu := rand.New(rand.NewPCG(uint64(id), 1)), sync.Mutex{}
					common := straggler.Draw(r)
					_, _ = hedge.Do(t.Context(), s, "shop", "/shop.Items/Get", func(ctx context.Context) (int, error) {
						mu.Lock()
						d := tc.takes(r, common)
						mu.Unlock()
						return hedgetest.Taking(d)(ctx)
					})
				})
			}
			group.Wait()
			all := collect(t, b.reader)
			of := func(name string, having ...string) float64 {
				v, _ := sum(all, "grpc.client.hedge."+name, having...)
				return v
			}
			outcome := func(o string) float64 { return of("decisions", "grpc.hedge.outcome="+o) }
			tail := func(which string) float64 { return 1000 * of("tail", "grpc.hedge.tail="+which) }
			got := read{of("sent") / of("calls"), outcome("won") / (outcome("won") + outcome("lost")),
				outcome("no_budget") / of("sent"), of("saved"),
				tail("predicted"), tail("measured"), tail("unhedged_estimate")}
			if t.Logf("%s: %+v", tc.name, got); !tc.is(got) {
				t.Error("this is not what the page reads")
			}
		})
	}
}

// TestMetrics_FromTheFirstCall expects zeros, and no metric of events that may never happen.
func TestMetrics_FromTheFirstCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t)
		s := hedgetest.New(t, b.telemetry(t), hedge.WithMethods("/shop.Items/Get"))
		if all := collect(t, b.reader); len(all) > 0 {
			t.Errorf("before the first call: %v", all)
		}
		hedgetest.Call(t, s, "shop", "/shop.Items/Get", ms)
		hedgetest.Call(t, s, "shop", "/shop.Items/Put", ms)
		all := collect(t, b.reader)
		for _, tc := range []struct {
			name   string
			having []string
			want   float64
			series int
		}{
			{"calls", nil, 2, 2}, {"sent", nil, 0, 1}, {"decisions", nil, 2, 4},
			{"decisions", []string{"grpc.method=shop.Items/Get", "grpc.hedge.outcome=won"}, 0, 1},
			{"decisions", []string{"grpc.method=shop.Items/Get", "grpc.hedge.outcome=lost"}, 0, 1},
			{"decisions", []string{"grpc.method=shop.Items/Get", "grpc.hedge.outcome=learning"}, 1, 1},
			{"decisions", []string{"grpc.method=shop.Items/Put", "grpc.hedge.outcome=not_selected"}, 1, 1},
			{"budget.tokens", nil, 1, 1},
		} {
			if got, n := sum(all, "grpc.client.hedge."+tc.name, tc.having...); got != tc.want &&
				tc.name != "budget.tokens" || n != tc.series {
				t.Errorf("%s %v: %v in %d series, want %v in %d", tc.name, tc.having, got, n, tc.want, tc.series)
			}
		}
	})
}
