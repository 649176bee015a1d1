package hedge_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// Print the hedges of all calls.
func ExampleWithTrace() {
	s := must(hedge.New(
		hedge.WithReadOnlyMethods("/shop.Items/Get*"),
		hedge.WithTrigger(hedge.Fixed(time.Millisecond)),
		hedge.WithMaxHedges(1),
		hedge.WithTrace(&hedge.Trace{
			HedgeSent:   func(e stats.HedgeSent) { fmt.Println("hedge", e.Hedge, "of", e.Method) },
			CallDecided: func(e stats.CallDecided) { fmt.Println("won by attempt", e.Winner, "of", e.Attempts) },
		})))
	_, err := hedge.Do(context.Background(), s, "shop", "/shop.Items/Get", func(ctx context.Context) (string, error) {
		md, _ := metadata.FromOutgoingContext(ctx)
		if len(md.Get("grpc-previous-rpc-attempts")) == 0 { // the primary is stuck
			<-ctx.Done()
			return "", ctx.Err()
		}
		return "an item", nil
	})
	if err != nil {
		panic(err)
	}
	// Output:
	// hedge 1 of /shop.Items/Get
	// won by attempt 1 of 2
}

// Ask what happened to one call.
func ExampleReport() {
	s := must(hedge.New(
		hedge.WithReadOnlyMethods("/hedgetest.TestService/*"),
		hedge.WithTrigger(hedge.Fixed(20*time.Millisecond))))
	client, stop := slowPrimary(s)
	defer stop()
	var outcome stats.Outcome
	must(client.Unary(context.Background(), &testpb.Request{Id: 2}, hedge.Report(&outcome)))
	fmt.Printf("%d attempts, won by %d, a hedge is due after %v\n", outcome.Attempts, outcome.Winner, outcome.Delay)
	// Output:
	// 2 attempts, won by 1, a hedge is due after 20ms
}

// Log changes of state.
func ExampleWithLogger() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	s := must(hedge.New(
		hedge.WithAllMethods(),
		hedge.WithBudgetPercent(1),
		hedge.WithTrigger(hedge.Fixed(0)),
		hedge.WithLogger(logger)))
	for range 2 { // the budget begins with one hedge
		_, _ = hedge.Do(context.Background(), s, "shop", "/shop.Items/Get", func(ctx context.Context) (int, error) {
			time.Sleep(5 * time.Millisecond)
			return 1, nil
		})
	}
	// Output:
	// level=WARN msg="hedge budget exhausted" target=shop method=/shop.Items/Get
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
