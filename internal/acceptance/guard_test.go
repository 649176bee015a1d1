package acceptance_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// trickle is the distribution of the workload slow-trickle: the median is 5 ms, and one attempt in twenty takes eight times as long.
var trickle = testserver.Straggler(testserver.LogNormal(5533*time.Microsecond, 2621*time.Microsecond), 0.05, 8)

// quota is a server's rate limit: a token bucket, of which each attempt takes one. An attempt that finds none fails.
type quota struct {
	rate  func(at time.Duration) float64 // tokens a second
	burst float64
	code  codes.Code

	mu     sync.Mutex
	tokens float64
	last   time.Duration
}

func newQuota(rate, burst float64) *quota {
	return &quota{rate: func(time.Duration) float64 { return rate }, burst: burst, tokens: burst, code: codes.ResourceExhausted}
}

// take is the simulation's fails.
func (q *quota) take(_ uint64, _ int, at time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tokens = min(q.tokens+q.rate(at)*(at-q.last).Seconds(), q.burst)
	q.last = at
	if q.tokens < 1 {
		return status.Error(q.code, "the quota is used up")
	}
	q.tokens--
	return nil
}

// failed is the share of calls that failed, in percent.
func failed(calls []outcome) float64 {
	n := 0
	for _, c := range calls {
		if c.err != nil {
			n++
		}
	}
	return 100 * float64(n) / float64(len(calls))
}

var unhedged = []hedge.Option{hedge.WithMaxHedges(0)}

// TestRule19_NoCallFailsForLackOfQuota offers calls close to a rate limit. Where hedges use it up, they become few, so that
// hardly more calls fail than without hedging, and where they do not, nothing changes.
func TestRule19_NoCallFailsForLackOfQuota(t *testing.T) {
	longtest.Simulation(t)
	calls := longtest.Size(8_000, 40_000)
	half := func(before, after, offered float64) func(time.Duration) float64 {
		return func(at time.Duration) float64 {
			if at.Seconds() < float64(calls)/offered/2 {
				return before
			}
			return after
		}
	}
	for _, tc := range longtest.First(1, []struct {
		name    string
		offered float64
		rate    func(at time.Duration) float64 // of the limit
	}{
		{"480 of 500 a second", 480, nil},
		{"400 of 500 a second", 400, nil},
		{"440 of 500 a second", 440, nil},
		{"460 of 500 a second", 460, nil},
		{"240 of 500 a second, then of 250", 240, half(500, 250, 240)},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			for seed := range uint64(longtest.Table(1, 2, 5)) {
				run := func(opts ...hedge.Option) ([]outcome, []stats.Method) {
					limit := newQuota(500, 50)
					if tc.rate != nil {
						limit.rate = tc.rate
					}
					return simulation{distribution: drawing(trickle, seed), fails: limit.take, calls: calls, rate: tc.offered, seed: seed, options: opts}.run(t)
				}
				plain, _ := run(unhedged...)
				hedged, rows := run()
				unguarded, _ := run(hedge.WithGuard(false))
				more := func(calls []outcome) float64 { return failed(calls) - failed(plain) }
				t.Logf("seed %d: failed %.2f%%, hedged %.2f%%, without the guard %.2f%%; p99 %v, hedged %v, without the guard %v; %+v",
					seed, failed(plain), failed(hedged), failed(unguarded), tail(plain, 0.99), tail(hedged, 0.99), tail(unguarded, 0.99), rows[0].Guard)
				// A tenth of a percent of 40,000 calls; most of what fails does so when the limit is first met.
				if most := 0.1 * 40_000 / float64(calls); more(hedged) > most {
					t.Errorf("seed %d: %.3f%% more calls fail, want at most %v%%", seed, more(hedged), most)
				}
				switch {
				case more(unguarded) == 0 && tail(hedged, 0.99) != tail(unguarded, 0.99):
					t.Errorf("seed %d: p99 is %v, and %v without the guard, though no call fails", seed, tail(hedged, 0.99), tail(unguarded, 0.99))
				case tc.offered == 480 && more(unguarded) < 2:
					t.Errorf("seed %d: the limit is not met", seed)
				case failed(hedged) > 0.01 && rows[0].Guarded == 0:
					t.Errorf("seed %d: no hedge was held back", seed)
				}
			}
		})
	}
}

// TestRule19_FailuresByChance: what fails for other reasons hardly costs hedging anything.
func TestRule19_FailuresByChance(t *testing.T) {
	longtest.Simulation(t)
	for seed := range uint64(longtest.Size(1, 5)) {
		run := func(share float64, opts ...hedge.Option) []outcome {
			fails := func(id uint64, attempt int, _ time.Duration) error {
				if generator(seed+99, id, attempt).Float64() < share {
					return status.Error(codes.Unavailable, "by chance")
				}
				return nil
			}
			calls, _ := simulation{distribution: drawing(trickle, seed), fails: fails, calls: 60_000, rate: 100, seed: seed, options: opts}.run(t)
			return calls
		}
		plain, hedged, unguarded := run(0.05, unhedged...), run(0.05), run(0.05, hedge.WithGuard(false))
		gain := func(calls []outcome) float64 { return float64(tail(plain, 0.99) - tail(calls, 0.99)) }
		kept := gain(hedged) / gain(unguarded)
		t.Logf("seed %d: p99 %v, hedged %v, without the guard %v: %.3f of the gain is kept; load %.2f%% and %.2f%%; failed %.2f%%, %.2f%%",
			seed, tail(plain, 0.99), tail(hedged, 0.99), tail(unguarded, 0.99), kept, 100*load(hedged), 100*load(unguarded), failed(plain), failed(hedged))
		if kept < 0.9 {
			t.Errorf("seed %d: %.3f of the gain is kept, want 0.9", seed, kept)
		}
	}
}

// TestRule19_CutsForNoReason has a server that cuts the connection after 25 resets in a second and does not say why, so that all
// calls in flight fail. Plain gRPC has no failure, and hedging hardly one after the first minute.
func TestRule19_CutsForNoReason(t *testing.T) {
	longtest.Simulation(t)
	run := func(plain bool, opts ...hedge.Option) (first, later float64) {
		synctest.Test(t, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Latency: testserver.LogNormal(110*ms, 50*ms), Seed: 1, DrawByID: true,
				CountsOnly: true, Limit: &testserver.LimitLikeApache})
			s := hedgetest.All(t, append(opts, hedge.WithBudgetPercent(50), hedge.WithTrigger(hedge.Fixed(100*ms)))...)
			backoffs := backoff.Config{BaseDelay: 100 * ms, MaxDelay: 100 * ms}
			dial := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoffs})}
			if !plain {
				dial = append(dial, hedgetest.Interceptors(s)...)
			}
			conn := cluster.ClientT(t, dial...)
			testserver.ConnectT(t, conn)
			var failed [5]atomic.Int64 // by minutes
			var group sync.WaitGroup
			for id := range 6000 * len(failed) {
				group.Go(func() {
					if _, err := testpb.NewTestServiceClient(conn).Unary(t.Context(), &testpb.Request{Id: uint64(id) + 1}); err != nil {
						failed[id/6000].Add(1)
					}
				})
				time.Sleep(10 * ms)
			}
			group.Wait()
			first = float64(failed[0].Load()) / 60
			for i := range failed[1:] {
				later += float64(failed[1+i].Load()) / 240
			}
		})
		return first, later
	}
	for _, tc := range []struct {
		name        string
		opts        []hedge.Option
		least, most float64 // percent of calls that fail after the first minute
	}{
		{"plain", nil, 0, 0},
		{"hedged", nil, 0, 0.3},
		{"hedged without the guard", []hedge.Option{hedge.WithGuard(false)}, 10, 100},
	} {
		first, later := run(tc.name == "plain", tc.opts...)
		t.Logf("%s: %.2f%% of calls fail in the first minute, %.2f%% later", tc.name, first, later)
		if later < tc.least || later > tc.most {
			t.Errorf("%s: %.2f%% of calls fail after the first minute, want %v to %v", tc.name, later, tc.least, tc.most)
		}
	}
}

// TestRule19_ALimitThatSaysUnavailable: a server that does not say what the matter is. It takes some minutes to find that
// calls fail because of hedges.
func TestRule19_ALimitThatSaysUnavailable(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	limit := newQuota(500, 50)
	limit.code = codes.Unavailable
	calls, rows := simulation{distribution: drawing(trickle, 1), fails: limit.take, calls: 400_000, rate: 480, seed: 1}.run(t)
	first, rest := calls[:len(calls)/2], calls[len(calls)/2:]
	t.Logf("failed in the first half %.2f%%, in the second %.2f%%; %+v", failed(first), failed(rest), rows[0].Guard)
	if failed(rest) > 1.5 {
		t.Errorf("%.2f%% of calls still fail", failed(rest))
	}
}

// TestRule19_OtherTenants: RESOURCE_EXHAUSTED goes on whatever hedges do. If the method has no hedges, those of others are as
// before, and if it has, nine in ten are sent again after some minutes.
func TestRule19_OtherTenants(t *testing.T) {
	longtest.Simulation(t)
	const rate, minutes = 20, 15
	run := func(fails func(id uint64, attempt int, at time.Duration) error, opts ...hedge.Option) (hedges int, rows []stats.Method) {
		calls, rows := simulation{distribution: drawing(trickle, 1), fails: fails, calls: rate * 60 * minutes, rate: rate, methods: 2, seed: 1, options: opts}.run(t)
		for _, c := range calls[len(calls)/3*2:] {
			hedges += c.attempts - 1
		}
		return hedges, rows
	}
	refused := func(odd bool) func(uint64, int, time.Duration) error {
		return func(id uint64, attempt int, _ time.Duration) error {
			if (id%2 == 1 || !odd) && generator(5, id, attempt).Float64() < 0.1 {
				return status.Error(codes.ResourceExhausted, "somebody else's quota")
			}
			return nil
		}
	}
	t.Run("of a method without hedges", func(t *testing.T) {
		_, rows := run(refused(true), hedge.WithMethodOptions(method+"1", hedge.WithMaxHedges(0)))
		if got := rows[0]; got.Guarded > 0 || got.Guard != (stats.Guard{Share: 1}) || got.Hedges == 0 {
			t.Errorf("%d hedges of the other method were held back, %d sent; %+v", got.Guarded, got.Hedges, got.Guard)
		}
	})
	t.Run("of all methods", func(t *testing.T) {
		hedged, rows := run(refused(false))
		unguarded, _ := run(refused(false), hedge.WithGuard(false))
		if float64(hedged) < 0.9*float64(unguarded) {
			t.Errorf("%d hedges in the last third, %d without the guard; %+v", hedged, unguarded, rows[0].Guard)
		}
	})
}

// TestGuard_HeldBack: a hedge that the guard holds back is counted once, and is sent when the guard lets it pass. The log says when
// hedges are first held back, and when that is over.
func TestGuard_HeldBack(t *testing.T) {
	for _, tc := range []struct {
		name     string
		options  []hedge.Option
		attempts int
		want     stats.Counts
		log      []string
	}{
		{"on", nil, 1, stats.Counts{Calls: 2, Warmup: 2, Hedged: 1, Hedges: 1, Guarded: 1},
			[]string{"level=WARN msg=\"guard holds hedges back\"", "level=INFO msg=\"guard lets hedges pass again\""}},
		{"off", []hedge.Option{hedge.WithGuard(false)}, 2, stats.Counts{Calls: 2, Warmup: 2, Hedged: 2, Hedges: 2}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l logged
				s := hedgetest.All(t, append(tc.options, l.option(), hedge.WithWarmup(100, 10*ms), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400))...)
				do := func(fn func(context.Context) (int, error)) { hedge.Do(t.Context(), s, target, method, fn) }
				do(func(ctx context.Context) (int, error) {
					if attemptOf(ctx) > 0 {
						return 0, status.Error(codes.ResourceExhausted, "quota")
					}
					return hedgetest.Taking(20 * ms)(ctx)
				})
				var attempts atomic.Int64
				do(func(ctx context.Context) (int, error) {
					attempts.Add(1)
					return hedgetest.Taking(time.Second)(ctx)
				})
				got := s.Stats()
				got.PrimaryWins, got.HedgeWins = 0, 0
				if n := attempts.Load(); n != int64(tc.attempts) || got != tc.want {
					t.Errorf("%d attempts, want %d; %+v", n, tc.attempts, got)
				}
				time.Sleep(2 * time.Minute)
				do(hedgetest.Taking(time.Second))
				if lines := l.lines(); !slices.EqualFunc(lines, tc.log, strings.HasPrefix) {
					t.Errorf("the log is %q", lines)
				}
			})
		})
	}
}
