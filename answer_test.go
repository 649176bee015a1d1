package hedge_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// A replica that lags behind has no orders yet. Its answer does not end the call: another replica is asked at once.
func ExampleWithAnswer() {
	s, err := hedge.New(
		hedge.WithReadOnlyMethods("/shop.Orders/List"),
		hedge.WithAnswer(func(_ context.Context, _ string, reply any, err error) bool {
			orders, ok := reply.([]string)
			return !ok || len(orders) > 0
		}),
		hedge.WithTrigger(hedge.Fixed(time.Second)), // long: hedges are sent for the answers alone
	)
	if err != nil {
		panic(err)
	}
	orders, err := hedge.Do(context.Background(), s, "shop", "/shop.Orders/List", func(ctx context.Context) ([]string, error) {
		if attemptOf(ctx) == 0 { // at the replica that lags
			return nil, nil
		}
		return []string{"a bicycle"}, nil
	})
	fmt.Println(orders, err, s.Stats().PoorAnswers)
	// Output: [a bicycle] <nil> 1
}

// TestDo_PoorValues has the context of a poor value live on while it may still be delivered, and no longer.
func TestDo_PoorValues(t *testing.T) {
	for _, tc := range []struct {
		name string
		good int // attempt; -1: none
		want int
	}{
		{"the hedge has a good value", 1, 1},
		{"nobody has", -1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good := hedge.WithAnswer(func(_ context.Context, _ string, value any, _ error) bool {
					return attemptOf(value.(context.Context)) == tc.good
				})
				s := hedgetest.All(t, good, hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithBudgetPercent(400), hedge.WithMaxHedges(1))
				attempts := make([]context.Context, 2)
				value, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (context.Context, error) {
					time.Sleep(5 * ms)
					attempts[attemptOf(ctx)] = ctx
					if primary := attempts[0]; primary.Err() != nil {
						t.Errorf("while the hedge ran, the context of the poor value ended: %v", primary.Err())
					}
					return ctx, nil
				})
				if err != nil || attemptOf(value) != tc.want {
					t.Fatalf("value of attempt %d, %v; want %d", attemptOf(value), err, tc.want)
				}
				synctest.Wait()
				for n, ctx := range attempts {
					if lost := n != tc.want; lost != (ctx.Err() != nil) {
						t.Errorf("the context of attempt %d: %v", n, ctx.Err())
					}
				}
			})
		})
	}
}

// TestDo_EOFIsAFailure has a function that ends with io.EOF, which for a stream alone is an end without a message.
func TestDo_EOFIsAFailure(t *testing.T) {
	asked := hedge.WithAnswer(func(context.Context, string, any, error) bool {
		t.Error("asked about a failure")
		return false
	})
	s := hedgetest.All(t, asked, hedge.WithTrigger(hedge.Fixed(time.Second)))
	_, err := hedge.Do(t.Context(), s, target, method, func(context.Context) (int, error) { return 0, io.EOF })
	if err != io.EOF {
		t.Error(err)
	}
}
