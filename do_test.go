package hedge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestDo_ReturnsTheWinnersValue races a function whose first run is slow.
func TestDo_ReturnsTheWinnersValue(t *testing.T) {
	type key struct{}
	failure := errors.New("no status")
	for _, tc := range []struct {
		name    string
		primary time.Duration
		hedge   error // of the hedge, which takes 5 ms
		want    string
		at      time.Duration
	}{
		{"no hedge needed", 5 * ms, nil, "primary", 5 * ms},
		{"the hedge wins", 50 * ms, nil, "hedge 1", 15 * ms},
		{"the primary wins", 12 * ms, nil, "primary", 12 * ms},
		{"the hedge fails, without a status", 50 * ms, failure, "primary", 50 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
					return "primary", err
				})
				if got != tc.want || err != nil || time.Since(began) != tc.at {
					t.Errorf("%q, %v after %v; want %q after %v", got, err, time.Since(began), tc.want, tc.at)
				}
				synctest.Wait()
			})
		})
	}
}

func TestDo_ReturnsThePrimarysErrorWhenAllFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithWarmup(1<<30, 10*ms), hedge.WithBudgetPercent(400))
		first, second := errors.New("first"), errors.New("second")
		value, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) {
			if isHedge(ctx) {
				return 2, second
			}
			_, _ = hedgetest.Taking(30 * ms)(ctx)
			return 1, first
		})
		if value != 1 || err != first {
			t.Errorf("%v, %v", value, err)
		}
	})
}

func TestDo_PanicsOnTheCallersGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithWarmup(1<<30, 10*ms), hedge.WithBudgetPercent(400))
		defer func() {
			v := recover()
			if p, ok := v.(*hedge.Panic); !ok || p.Value != "in a hedge" || p.Unwrap() != nil || !strings.Contains(string(p.Stack), "inAHedge") {
				t.Errorf("recovered %v", v)
			}
		}()
		_, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) {
			if isHedge(ctx) {
				inAHedge()
			}
			return hedgetest.Taking(time.Second)(ctx)
		})
		t.Errorf("returned %v", err)
	})
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
