package otel_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	hedgeotel "github.com/grpchedge/hedge/otel"
	testpb "github.com/grpchedge/hedge/proto"
)

// trouble is a target with a trouble of its own, and the alert that is for it. takes returns the
// latency of an attempt in milliseconds.
type trouble struct {
	target, alert string
	options       []hedge.Option
	takes         func(id int, hedge bool) (time.Duration, error)
	panics        bool // a hedge that has lost
}

var troubles = []trouble{
	{"dry", "HedgingBudgetDry", []hedge.Option{hedge.WithBudgetPercent(1)},
		func(_ int, hedge bool) (time.Duration, error) { return either(hedge, 1, 100), nil }, false},
	{"wasted", "HedgingWithoutWins", nil,
		func(id int, hedge bool) (time.Duration, error) {
			return either(id%20 > 0, 1, either(hedge, 1000, 30)), nil
		}, false},
	{"throttled", "HedgingThrottled", []hedge.Option{hedgetest.Throttle(10, 0.1)},
		func(int, bool) (time.Duration, error) { return 30, status.Error(codes.Unavailable, "down") }, false},
	{"paused", "HedgingPaused", nil,
		func(int, bool) (time.Duration, error) { return 1, nil }, false},
	{"busy", "HedgingOverBudget", []hedge.Option{hedge.WithBudgetPercent(400)},
		func(_ int, hedge bool) (time.Duration, error) { return either(hedge, 1, 30), nil }, false},
	{"guarded", "HedgingGuarded", nil,
		func(id int, hedge bool) (time.Duration, error) {
			if hedge && id%40 == 0 {
				return 0, status.Error(codes.ResourceExhausted, "quota")
			}
			return either(hedge || id%20 > 0, 1, 30), nil
		}, false},
	{"panicking", "HedgingPanics", nil,
		func(id int, hedge bool) (time.Duration, error) {
			return either(id%20 > 0, 1, either(hedge, either(id%40 > 0, 1, 1000), 30)), nil
		}, true},
}

func either(first bool, a, b time.Duration) time.Duration {
	if first {
		return a
	}
	return b
}

// call makes one call to the target.
func (tr trouble) call(t *testing.T, s *hedge.Scheduler, id int) {
	var attempts atomic.Int32
	_, _ = hedge.Do(t.Context(), s, tr.target, "/shop.Items/Get", func(ctx context.Context) (int, error) {
		isHedge := attempts.Add(1) > 1
		d, err := tr.takes(id, isHedge)
		if _, gone := hedgetest.Taking(d * ms)(ctx); gone != nil && isHedge && tr.panics {
			panic("a loser")
		}
		return 0, err
	})
}

// scenario returns Prometheus's scrapes for each of ninety minutes, and the scheduler's counts.
// Three backends with stragglers serve a connection, and one of them is stalled for the last ten
// minutes. A server counts the resets of another connection, and each trouble has its own target.
func scenario(t *testing.T) (scrapes []string, healthy, counting string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t)
		var frozen, over atomic.Bool
		cluster := testserver.StartT(t, testserver.Config{Name: "items", InMemory: true, Backends: 3, Seed: 1,
			CountsOnly: true,
			Script: func(a testserver.Attempt) testserver.Plan {
				if a.Backend == 0 && frozen.Load() {
					return testserver.Plan{Ending: testserver.Hang}
				}
				return testserver.Plan{Delay: a.Draw(testserver.DistributionT(t, "straggler"))}
			}})
		resets := testserver.StartT(t, testserver.Config{Name: "resets", InMemory: true, CountsOnly: true,
			Script: testserver.ByNumber(testserver.Plan{Delay: 30 * ms}, testserver.Plan{Delay: ms})})
		fixed := hedge.WithTrigger(hedge.Fixed(10 * ms))
		options := []hedge.Option{b.telemetry(t), hedge.WithControl(40),
			hedge.WithTargetOptions(resets.Target(), fixed, hedge.WithControl(0), hedge.WithBudgetPercent(100),
				hedge.WithResetLimit(2, time.Hour))}
		for _, tr := range troubles {
			options = append(options,
				hedge.WithTargetOptions(tr.target,
					append(tr.options, fixed, hedge.WithMaxHedges(1), hedge.WithControl(0))...))
		}
		s := hedgetest.All(t, options...)
		healthy, counting = cluster.Target(), resets.Target()

		var callers sync.WaitGroup
		each := func(pause time.Duration, call func(id uint64)) {
			callers.Go(func() {
				for id := uint64(0); !over.Load(); id++ {
					call(id)
					time.Sleep(pause)
				}
			})
		}
		for i, c := range []*testserver.Cluster{cluster, resets} {
			conn := c.ClientT(t, append(hedgeotel.DialOptions(s, b.plugin()), otherBackend)...)
			testserver.ConnectT(t, conn)
			client, name := testpb.NewTestServiceClient(conn), []string{"unary", "stream"}
			each(250*ms, func(id uint64) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				_ = kinds[name[int(id%10/9)*(1-i)]](ctx, client, id)
			})
		}
		paused := hedgetest.All(t, b.telemetry(t))
		paused.Pause()
		for _, tr := range troubles {
			of := s
			if tr.target == "paused" {
				of = paused
			}
			each(time.Second, func(id uint64) { tr.call(t, of, int(id)) })
		}
		time.Sleep(ms / 2)
		for minute := range 90 {
			scrapes = append(scrapes, b.scrape())
			frozen.Store(minute >= 80)
			time.Sleep(time.Minute)
		}
		scrapes = append(scrapes, b.scrape())
		over.Store(true)
		callers.Wait()
	})
	return scrapes, healthy, counting
}
