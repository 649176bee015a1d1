package acceptance_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// TestDo_ReturnsTheWinnersValue races a function with a slow first run.
func TestDo_ReturnsTheWinnersValue(t *testing.T) {
	type key struct{}
	failure := errors.New("no status")
	for _, tc := range []struct {
		name    string
		primary time.Duration
		fails   [2]error // the primary, and the hedge, which takes 5 ms
		want    int
		at      time.Duration
	}{
		{"no hedge needed", 5 * ms, [2]error{}, 0, 5 * ms},
		{"the hedge wins", 50 * ms, [2]error{}, 1, 15 * ms},
		{"the primary wins", 12 * ms, [2]error{}, 0, 12 * ms},
		{"the hedge fails, without a status", 50 * ms, [2]error{nil, failure}, 0, 50 * ms},
		{"all fail", 50 * ms, [2]error{failure, errors.New("second")}, 0, 50 * ms},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
			began := time.Now()
			got, err := hedge.Do(context.WithValue(t.Context(), key{}, "value"), s, target, method,
				func(ctx context.Context) (int, error) {
					if ctx.Value(key{}) != "value" {
						t.Error("an attempt lost the caller's values")
					}
					n := simulation.AttemptOf(ctx)
					_, err := hedgetest.Taking([]time.Duration{tc.primary, 5 * ms}[n])(ctx)
					return n, cmp.Or(err, tc.fails[n])
				})
			if got != tc.want || err != tc.fails[tc.want] || time.Since(began) != tc.at {
				t.Errorf("%d, %v after %v; want %d after %v", got, err, time.Since(began), tc.want, tc.at)
			}
			synctest.Wait()
		})
	}
}

// TestDo_RejectedValues has the context of a rejected value live on while it may still be
// delivered, and no longer.
func TestDo_RejectedValues(t *testing.T) {
	for want, good := range []int{-1, 1} { // the attempt with a good value; -1: none
		synctest.Test(t, func(t *testing.T) {
			acceptable := hedge.WithAcceptable(func(_ context.Context, _ string, value any, _ error) bool {
				return simulation.AttemptOf(value.(context.Context)) == good
			})
			s := hedgetest.Fixed(t, 10*ms, acceptable, hedge.WithMaxHedges(1))
			attempts := make([]context.Context, 2)
			value, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (context.Context, error) {
				time.Sleep(5 * ms)
				attempts[simulation.AttemptOf(ctx)] = ctx
				if primary := attempts[0]; primary.Err() != nil {
					t.Errorf("while the hedge ran, the context of the rejected value ended: %v", primary.Err())
				}
				return ctx, nil
			})
			synctest.Wait()
			if err != nil || value != attempts[want] || value.Err() != nil || attempts[1-want].Err() == nil {
				t.Errorf("%v, want the value of attempt %d; the contexts: %v", err, want, attempts)
			}
		})
	}
}

// TestDo_EOFIsAFailure has a function that ends with io.EOF, which for a stream alone is an end
// without a message.
func TestDo_EOFIsAFailure(t *testing.T) {
	s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(time.Second)),
		hedge.WithAcceptable(func(context.Context, string, any, error) bool {
			t.Error("asked about a failure")
			return false
		}))
	if _, err := hedge.Do(t.Context(), s, target, method, func(context.Context) (int, error) { return 0, io.EOF }); err !=
		io.EOF {
		t.Error(err)
	}
}

// TestNewContext has contexts within contexts, and calls under an attempt's. internal/settings tests
// one context against the options of a call.
func TestNewContext(t *testing.T) {
	type key struct{}
	with := hedge.NewContext
	after := with(t.Context(), hedge.After(ms))
	derived := context.WithValue(after, key{}, 1)
	var attempts context.Context
	_, _ = hedge.Do(after, hedgetest.All(t), target, method, func(ctx context.Context) (int, error) {
		attempts = ctx
		return 0, nil
	})
	for name, tc := range map[string]struct {
		ctx  context.Context
		want time.Duration // -1: never
	}{
		"derived":                          {derived, ms},
		"an attempt's":                     {attempts, ms},
		"the inner context counts":         {with(derived, hedge.After(2*ms)), 2 * ms},
		"an inner context without options": {with(after), ms},
		"Off in an inner context":          {with(after, hedge.Off()), -1},
		"options of others":                {with(t.Context(), hedge.After(ms), grpc.WaitForReady(true), nil), ms},
	} {
		c := hcall.Begin((*registry.Registry)(hedgetest.All(t)), tc.ctx, target, method, nil)
		delay := time.Duration(-1)
		if c.Hedged() {
			delay = c.Plan().Due
		}
		if delay != tc.want {
			t.Errorf("%s: hedged after %v, want %v", name, delay, tc.want)
		}
	}
}
