// Package hedgetest has test helpers that need no server: schedulers, their interceptors, and calls,
// also without gRPC.
package hedgetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/runqueue"
)

// A machine that runs tests is busy. So tests that import this package have processors to spare.
func init() { runqueue.Replace(func() time.Duration { return 0 }) }

// Run runs a subtest in virtual time.
func Run(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// New is [hedge.New] for a test, which fails if the options have an error.
func New(tb testing.TB, opts ...hedge.Option) *hedge.Scheduler {
	tb.Helper()
	s, err := hedge.New(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// All returns a scheduler that hedges all methods, unless the options select some.
func All(tb testing.TB, opts ...hedge.Option) *hedge.Scheduler {
	tb.Helper()
	return New(tb, append([]hedge.Option{hedge.WithAllMethods()}, opts...)...)
}

// Fixed returns a scheduler that hedges all methods after delay. It never learns enough to change
// that, and its budget always pays.
func Fixed(tb testing.TB, delay time.Duration, opts ...hedge.Option) *hedge.Scheduler {
	tb.Helper()
	return All(tb, append([]hedge.Option{hedge.WithWarmup(1<<30, delay), hedge.WithBudgetPercent(400)}, opts...)...)
}

// FixedOrPlain is Fixed, or nil, for plain gRPC, if delay is 0.
func FixedOrPlain(tb testing.TB, delay time.Duration, opts ...hedge.Option) *hedge.Scheduler {
	tb.Helper()
	if delay == 0 {
		return nil
	}
	return Fixed(tb, delay, opts...)
}

// Interceptors returns the dial options that hedge the unary calls and the streams of a connection.
func Interceptors(s *hedge.Scheduler) []grpc.DialOption {
	return interceptor.DialOptions(s)
}

// Call makes a call. Each of its attempts takes d.
func Call(tb testing.TB, s *hedge.Scheduler, target, method string, d time.Duration) {
	tb.Helper()
	if _, err := hedge.Do(tb.Context(), s, target, method, Taking(d)); err != nil {
		tb.Fatal(err)
	}
}

// Taking is an attempt that takes d, or ends with its context.
func Taking(d time.Duration) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		// No timer: if several goroutines of a bubble receive from timers that are due already,
		// the race detector may crash. See golang/go#78156.
		if d <= 0 {
			return 0, nil
		}
		select {
		case <-time.After(d):
			return 0, nil
		case <-ctx.Done():
			return 0, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// P99 makes reads, some at a time, and returns the 99th percentile of what one takes.
func P99(tb testing.TB, reads, atOnce int, read func(n int) error) time.Duration {
	tb.Helper()
	took := make([]time.Duration, reads)
	var all sync.WaitGroup
	for w := range atOnce {
		all.Go(func() {
			for i := w; i < reads; i += atOnce {
				began := time.Now()
				if err := read(i); err != nil {
					tb.Error(err)
					return
				}
				took[i] = time.Since(began)
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took[len(took)*99/100]
}

// Throttle returns a service config that has a retryThrottling and nothing else.
func Throttle(maxTokens int, ratio float64) hedge.Option {
	return hedge.WithServiceConfig(fmt.Sprintf(`{"retryThrottling": {"maxTokens": %d, "tokenRatio": %v}}`,
		maxTokens, ratio))
}

// Update is [hedge.Scheduler.Update] for a test, which fails if the options have an error.
func Update(tb testing.TB, s *hedge.Scheduler, opts ...hedge.Option) {
	tb.Helper()
	if err := s.Update(opts...); err != nil {
		tb.Error(err)
	}
}
