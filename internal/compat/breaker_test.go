package compat_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafegrpc"
	"github.com/sony/gobreaker/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

func canceled(err error) bool { return status.Code(err) == codes.Canceled }

// failsafe returns a breaker of failsafe-go that opens at 3 failures of 100 if few is set. exempt
// tells it that CANCELED is no failure.
func failsafe(few, exempt bool) grpc.UnaryClientInterceptor {
	b := circuitbreaker.NewBuilder[any]()
	if few {
		b = b.WithFailureThresholdRatio(3, 100).WithDelay(5 * time.Second)
	}
	if exempt {
		b = b.HandleIf(func(_ any, err error) bool { return err != nil && !canceled(err) })
	}
	return failsafegrpc.NewUnaryClientInterceptor(b.Build())
}

// breaker is failsafe of gobreaker.
func breaker(few, exempt bool) grpc.UnaryClientInterceptor {
	var s gobreaker.Settings
	if few {
		s.ReadyToTrip = func(c gobreaker.Counts) bool {
			return c.Requests >= 100 && float64(c.TotalFailures) >= 0.03*float64(c.Requests)
		}
	}
	if exempt {
		s.IsExcluded = canceled
	}
	b := gobreaker.NewCircuitBreaker[any](s)
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		_, err := b.Execute(func() (any, error) { return nil, invoker(ctx, method, req, reply, cc, opts...) })
		return err
	}
}

// TestBreaker has the figures of docs/chaining.md: circuit breakers inside and outside of hedging.
// One call in twenty is slow, or each, and none fails. A loser ends with CANCELED, which a breaker
// inside counts as a failure of the server unless it is configured otherwise.
func TestBreaker(t *testing.T) {
	const calls = 2000
	for _, tc := range []struct {
		name string
		make func(few, exempt bool) grpc.UnaryClientInterceptor
		few  bool
		slow uint64 // one call in so many
	}{
		{name: "failsafe-go, defaults", make: failsafe, slow: 20},
		{name: "failsafe-go, 3 of 100", make: failsafe, few: true, slow: 20},
		{name: "gobreaker, defaults", make: breaker, slow: 20},
		{name: "gobreaker, 3 of 100", make: breaker, few: true, slow: 20},
		{name: "gobreaker, 3 of 100, one backend stopped", make: breaker, few: true, slow: 1},
	} {
		failed := func(c chain) (failed int) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, c, func(a testserver.Attempt) testserver.Plan {
					if a.Number == 0 && a.ID%tc.slow == tc.slow-1 {
						return testserver.Plan{Delay: 100 * ms}
					}
					return testserver.Plan{Delay: 5 * ms}
				})
				for id := range uint64(calls) {
					if _, err := w.client.Unary(t.Context(), &testpb.Request{Id: id}); err != nil {
						failed++
					}
					time.Sleep(5 * ms)
				}
			})
			return failed
		}
		outside, inside := failed(chain{outside: unaries(tc.make(tc.few, false))}), failed(
			chain{inside: unaries(tc.make(tc.few, false))})
		exempt := failed(chain{inside: unaries(tc.make(tc.few, true))})
		t.Logf("%s: of %d calls %d fail with the breaker outside, %d inside, %d inside with CANCELED as "+
			"no failure", tc.name, calls, outside, inside, exempt)
		if outside != 0 || exempt != 0 {
			t.Errorf("%s: %d calls fail outside and %d inside, with CANCELED as no failure; want none", tc.name, outside, exempt)
		}
		if tc.few && inside == 0 {
			t.Errorf("%s: no call fails inside: the breaker saw no loser", tc.name)
		}
	}
}
