package acceptance_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/stats"
)

// TestDo_ReturnsTheWinnersValue races a function with a slow first run.
func TestDo_ReturnsTheWinnersValue(t *testing.T) {
	type key struct{}
	failure := errors.New("no status")
	for _, tc := range []struct {
		name    string
		primary time.Duration
		hedge   error // of the hedge, which takes 5 ms
		fails   error // of the primary
		want    string
		at      time.Duration
	}{
		{"no hedge needed", 5 * ms, nil, nil, "primary", 5 * ms},
		{"the hedge wins", 50 * ms, nil, nil, "hedge 1", 15 * ms},
		{"the primary wins", 12 * ms, nil, nil, "primary", 12 * ms},
		{"the hedge fails, without a status", 50 * ms, failure, nil, "primary", 50 * ms},
		{"all fail", 50 * ms, errors.New("second"), failure, "primary", 50 * ms},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.All(t, hedge.WithWarmup(1<<30, 10*ms), hedge.WithBudgetPercent(400), hedge.WithMaxHedges(1))
			ctx := context.WithValue(t.Context(), key{}, "value")
			began := time.Now()
			got, err := hedge.Do(ctx, s, target, method, func(ctx context.Context) (string, error) {
				if ctx.Value(key{}) != "value" {
					t.Error("an attempt lost the caller's values")
				}
				md, _ := metadata.FromOutgoingContext(ctx)
				if number := md.Get("grpc-previous-rpc-attempts"); len(number) > 0 {
					_, err := hedgetest.Taking(5 * ms)(ctx)
					return "hedge " + number[0], errors.Join(err, tc.hedge)
				}
				_, err := hedgetest.Taking(tc.primary)(ctx)
				return "primary", cmp.Or(err, tc.fails)
			})
			if got != tc.want || err != tc.fails || time.Since(began) != tc.at {
				t.Errorf("%q, %v after %v; want %q after %v", got, err, time.Since(began), tc.want, tc.at)
			}
			synctest.Wait()
		})
	}
}

func inAHedge() { panic("in a hedge") }

// ExamplePanic shows where a hedge panicked, on the goroutine that made the call.
func ExamplePanic() {
	s, err := hedge.New(hedge.WithReadOnlyMethods("/greeter/Greet"), hedge.WithWarmup(20, ms))
	if err != nil {
		panic(err)
	}
	defer func() {
		if p, ok := recover().(*hedge.Panic); ok {
			fmt.Println(p.Value, strings.Contains(string(p.Stack), "inAHedge"))
		}
	}()
	_, _ = hedge.Do(context.Background(), s, "greeter", "/greeter/Greet", func(ctx context.Context) (string, error) {
		if isHedge(ctx) {
			inAHedge()
		}
		<-ctx.Done()
		return "", ctx.Err()
	})
	// Output: in a hedge true
}

// A replica that lags behind has no orders yet. Its answer does not end the call: another replica
// is asked at once.
func ExampleWithAcceptable() {
	s, err := hedge.New(
		hedge.WithReadOnlyMethods("/shop.Orders/List"),
		hedge.WithAcceptable(func(_ context.Context, _ string, reply any, err error) bool {
			orders, ok := reply.([]string)
			return !ok || len(orders) > 0
		}),
		hedge.WithTrigger(hedge.Fixed(time.Second)), // long: hedges are sent for the answers alone
	)
	if err != nil {
		panic(err)
	}
	orders, err := hedge.Do(context.Background(), s, "shop", "/shop.Orders/List",
		func(ctx context.Context) ([]string, error) {
			if simulation.AttemptOf(ctx) == 0 { // at the replica that lags
				return nil, nil
			}
			return []string{"a bicycle"}, nil
		})
	fmt.Println(orders, err, s.Stats().Rejected)
	// Output: [a bicycle] <nil> 1
}

// TestDo_RejectedValues has the context of a rejected value live on while it may still be
// delivered, and no longer.
func TestDo_RejectedValues(t *testing.T) {
	for _, tc := range []struct {
		name string
		good int // attempt; -1: none
		want int
	}{
		{"the hedge has a good value", 1, 1},
		{"nobody has", -1, 0},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			good := hedge.WithAcceptable(func(_ context.Context, _ string, value any, _ error) bool {
				return simulation.AttemptOf(value.(context.Context)) == tc.good
			})
			s := hedgetest.All(t, good, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithBudgetPercent(400),
				hedge.WithMaxHedges(1))
			attempts := make([]context.Context, 2)
			value, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (context.Context, error) {
				time.Sleep(5 * ms)
				attempts[simulation.AttemptOf(ctx)] = ctx
				if primary := attempts[0]; primary.Err() != nil {
					t.Errorf("while the hedge ran, the context of the rejected value ended: %v", primary.Err())
				}
				return ctx, nil
			})
			if err != nil || value != attempts[tc.want] {
				t.Fatalf("%v, %v; want the value of attempt %d", value, err, tc.want)
			}
			synctest.Wait()
			for n, ctx := range attempts {
				if lost := n != tc.want; lost != (ctx.Err() != nil) {
					t.Errorf("the context of attempt %d: %v", n, ctx.Err())
				}
			}
		})
	}
}

// TestDo_EOFIsAFailure has a function that ends with io.EOF, which for a stream alone is an end
// without a message.
func TestDo_EOFIsAFailure(t *testing.T) {
	asked := hedge.WithAcceptable(func(context.Context, string, any, error) bool {
		t.Error("asked about a failure")
		return false
	})
	s := hedgetest.All(t, asked, hedge.WithTrigger(hedge.Fixed(time.Second)))
	_, err := hedge.Do(t.Context(), s, target, method, func(context.Context) (int, error) { return 0, io.EOF })
	if err != io.EOF {
		t.Error(err)
	}
}

// TestNewContext has contexts within contexts. internal/settings tests one context against the
// options of a call.
func TestNewContext(t *testing.T) {
	type key struct{}
	with := hedge.NewContext
	derived := func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, 1) }
	after := with(t.Context(), hedge.After(ms))
	for _, tc := range []struct {
		name string
		ctx  context.Context
		want time.Duration // -1: never
	}{
		{"derived", derived(after), ms},
		{"the inner context counts", with(derived(after), hedge.After(2*ms)), 2 * ms},
		{"an inner context without options", with(after), ms},
		{"Off in an inner context", with(after, hedge.Off()), -1},
		{"options of others", with(t.Context(), hedge.After(ms), grpc.WaitForReady(true), nil), ms},
	} {
		c := hcall.Begin((*registry.Registry)(hedgetest.All(t)), tc.ctx, target, method, nil)
		delay := time.Duration(-1)
		if c.Hedged() {
			delay = c.Plan().Due
		}
		if delay != tc.want {
			t.Errorf("%s: hedged after %v, want %v", tc.name, delay, tc.want)
		}
	}
}

// An attempt's context is derived from the call's, so calls under it have the options too.
func TestNewContext_AttemptsInherit(t *testing.T) {
	s := hedgetest.All(t)
	ctx := hedge.NewContext(t.Context(), hedge.Off())
	_, err := hedge.Do(ctx, s, target, method, func(ctx context.Context) (int, error) {
		return hedge.Do(ctx, s, target, "/pkg.Svc/Inner", func(context.Context) (int, error) { return 0, nil })
	})
	if got := s.Stats(); err != nil || got != (stats.Counts{Calls: 2, Off: 2}) {
		t.Errorf("%+v, %v", got, err)
	}
}
