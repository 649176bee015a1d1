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

// TestBreaker has the figures of docs/chaining.md: circuit breakers inside and outside of hedging.
// One call in twenty is slow and none fails. A loser ends with CANCELED, which a breaker inside
// counts as a failure of the server unless it is configured otherwise.
func TestBreaker(t *testing.T) {
	const calls = 2000
	failsafe := func(b circuitbreaker.Builder[any]) grpc.UnaryClientInterceptor {
		return failsafegrpc.NewUnaryClientInterceptor(b.Build())
	}
	noCancel := func(_ any, err error) bool { return err != nil && !canceled(err) }
	gobreaker := func(of gobreaker.Settings) grpc.UnaryClientInterceptor {
		breaker := gobreaker.NewCircuitBreaker[any](of)
		return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			_, err := breaker.Execute(func() (any, error) { return nil, invoker(ctx, method, req, reply, cc, opts...) })
			return err
		}
	}
	slowInTurn := func(a testserver.Attempt) testserver.Plan { // one call in twenty
		if a.Number == 0 && a.ID%20 == 19 {
			return says(a, testserver.Plan{Delay: 100 * ms})
		}
		return says(a, testserver.Plan{Delay: 5 * ms})
	}
	allSlow := func(a testserver.Attempt) testserver.Plan { // each primary, as where its backend has stopped
		if a.Number == 0 {
			return says(a, testserver.Plan{Delay: 100 * ms})
		}
		return says(a, testserver.Plan{Delay: 5 * ms})
	}
	for _, tc := range []struct {
		name   string
		make   func() grpc.UnaryClientInterceptor
		told   func() grpc.UnaryClientInterceptor // that CANCELED is no failure
		script testserver.Script
	}{
		{"failsafe-go, defaults", func() grpc.UnaryClientInterceptor { return failsafe(circuitbreaker.NewBuilder[any]()) },
			func() grpc.UnaryClientInterceptor {
				return failsafe(circuitbreaker.NewBuilder[any]().HandleIf(noCancel))
			}, slowInTurn},
		{"failsafe-go, 3 of 100", func() grpc.UnaryClientInterceptor {
			return failsafe(circuitbreaker.NewBuilder[any]().WithFailureThresholdRatio(3, 100).WithDelay(5 * time.Second))
		}, func() grpc.UnaryClientInterceptor {
			return failsafe(circuitbreaker.NewBuilder[any]().WithFailureThresholdRatio(3,
				100).WithDelay(5 * time.Second).HandleIf(noCancel))
		}, slowInTurn},
		{"gobreaker, defaults", func() grpc.UnaryClientInterceptor { return gobreaker(breakerSettings{}.settings()) },
			func() grpc.UnaryClientInterceptor { return gobreaker(breakerSettings{told: true}.settings()) }, slowInTurn},
		{"gobreaker, 3 of 100",
			func() grpc.UnaryClientInterceptor { return gobreaker(breakerSettings{share: 0.03}.settings()) },
			func() grpc.UnaryClientInterceptor {
				return gobreaker(breakerSettings{share: 0.03, told: true}.settings())
			}, slowInTurn},
		{"gobreaker, 3 of 100, one backend stopped",
			func() grpc.UnaryClientInterceptor { return gobreaker(breakerSettings{share: 0.03}.settings()) },
			func() grpc.UnaryClientInterceptor {
				return gobreaker(breakerSettings{share: 0.03, told: true}.settings())
			}, allSlow},
	} {
		failed := func(c chain) (failed int) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, c, tc.script)
				for id := range uint64(calls) {
					if _, err := w.client.Unary(t.Context(), &testpb.Request{Id: id}); err != nil {
						failed++
					}
					time.Sleep(5 * ms)
				}
			})
			return failed
		}
		outside, inside, told := failed(chain{outside: unaries(tc.make())}), failed(
			chain{inside: unaries(tc.make())}), failed(chain{inside: unaries(tc.told())})
		t.Logf("%s: of %d calls %d fail with the breaker outside, %d inside, %d inside with CANCELED as "+
			"no failure", tc.name, calls, outside, inside, told)
		if outside != 0 || told != 0 {
			t.Errorf("%s: %d calls fail outside and %d inside, with CANCELED as no failure; want none", tc.name, outside, told)
		}
	}
}

// breakerSettings are the settings in which the breakers of gobreaker differ.
type breakerSettings struct {
	share float64 // of failures that opens it; 0: the default
	told  bool
}

func (g breakerSettings) settings() (s gobreaker.Settings) {
	if g.share > 0 {
		s.ReadyToTrip = func(c gobreaker.Counts) bool {
			return c.Requests >= 100 && float64(c.TotalFailures) >= g.share*float64(c.Requests)
		}
	}
	if g.told {
		s.IsExcluded = canceled
	}
	return s
}
