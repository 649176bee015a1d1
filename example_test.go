package hedge_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

// The quick start: one scheduler, two dial options.
func Example() {
	target := "dns:///localhost:50051"
	creds := grpc.WithTransportCredentials(insecure.NewCredentials())

	s := must(hedge.New(hedge.WithReadOnlyMethods("/pkg.Svc/Get*", "/pkg.Svc/List*"))) // nothing to tune
	conn := must(grpc.NewClient(target, creds,
		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)),
		grpc.WithChainStreamInterceptor(stream.Interceptor(s))))
	defer conn.Close()
	fmt.Println(conn.Target())
	// Output: dns:///localhost:50051
}

// New requires an option that selects methods, because a server may execute a hedged write twice.
func ExampleWithAllMethods() {
	_, err := hedge.New()
	fmt.Println(err)
	_, err = hedge.New(hedge.WithAllMethods()) // each of them may
	fmt.Println(err)
	// Output:
	// hedge: New: must have an option that selects methods, such as WithReadOnlyMethods
	// <nil>
}

// The client selects the read-only methods if the .proto files do not.
func ExampleWithReadOnlyMethods() {
	s := must(hedge.New(hedge.WithReadOnlyMethods("/pkg.Svc/Get*", "/pkg.Svc/List*")))
	for _, method := range []string{"/pkg.Svc/GetUser", "/pkg.Svc/DeleteUser"} {
		doOnce(s, method)
	}
	for _, row := range s.Methods() {
		fmt.Println(row.Method, "left out:", row.NotSelected)
	}
	// Output:
	// /pkg.Svc/DeleteUser left out: 1
	// /pkg.Svc/GetUser left out: 0
}

// New reports all invalid options.
func ExampleNew() {
	_, err := hedge.New(
		hedge.WithIdempotentOnly(),
		hedge.WithTrigger(hedge.Percentile(95)),
		hedge.WithMaxHedges(7))
	fmt.Println(err)
	// Output:
	// hedge: WithTrigger(Percentile(95)): quantile must be between 0 and 1, exclusive
	// hedge: WithMaxHedges(7): must be 0 to 4
}

// The triggers, and how they print.
func ExampleWithTrigger() {
	for _, trigger := range []hedge.Trigger{
		hedge.Auto(), // the default
		hedge.Auto(hedge.TargetPercentile(0.999)), // its figures are about p99.9 in place of p99
		hedge.Percentile(0.95),                    // later than 95 in 100 primaries
		hedge.Fixed(20 * time.Millisecond),        // whatever is learned
		hedge.Percentile(95),
	} {
		_, err := hedge.New(hedge.WithIdempotentOnly(), hedge.WithTrigger(trigger))
		fmt.Println(trigger, err)
	}
	// Output:
	// Auto() <nil>
	// Auto(TargetPercentile(0.999)) <nil>
	// Percentile(0.95) <nil>
	// Fixed(20ms) <nil>
	// Percentile(95) hedge: WithTrigger(Percentile(95)): quantile must be between 0 and 1, exclusive
}

// A dry run predicts the effect of hedging on real traffic without sending hedges.
func ExampleWithDryRun() {
	s := must(hedge.New(hedge.WithMethods("/pkg.Svc/Get*"), hedge.WithDryRun(true)))
	for i := range 1000 { // one call in thirty is slow
		hedge.Do(context.Background(), s, "dns:///example", "/pkg.Svc/Get", func(context.Context) (int, error) {
			if i%30 == 0 {
				time.Sleep(20 * time.Millisecond)
			}
			return 0, nil
		})
	}
	for _, f := range s.Methods()[0].Forecasts {
		fmt.Printf("a budget of %v%% would improve p99: %v\n", f.BudgetPercent, f.Tail < f.UnhedgedTail/2)
	}
	// Output:
	// a budget of 2% would improve p99: false
	// a budget of 5% would improve p99: true
	// a budget of 10% would improve p99: true
	// a budget of 20% would improve p99: true
}

// Only methods that are safe to run twice are hedged.
func ExampleWithIdempotentOnly() {
	s := must(hedge.New(
		hedge.WithIdempotentOnly(),                          // what its .proto file calls safe to repeat
		hedge.WithMethods("/hedgetest.TestService/Unary*"))) // and is named so
	for _, method := range []string{"Unary", "UnaryIdempotent", "ServerStreamIdempotent"} {
		doOnce(s, "/hedgetest.TestService/"+method)
	}
	for _, row := range s.Methods() {
		fmt.Println(row.Method, "left out:", row.NotSelected)
	}
	// Output:
	// /hedgetest.TestService/ServerStreamIdempotent left out: 1
	// /hedgetest.TestService/Unary left out: 1
	// /hedgetest.TestService/UnaryIdempotent left out: 0
}

// A gRPC service config selects the methods to hedge, with their delays. All others are not hedged.
func ExampleWithServiceConfig() {
	s := must(hedge.New(hedge.WithServiceConfig(`{
		"methodConfig": [{
			"name": [{"service": "hedgetest.TestService", "method": "Unary"}],
			"hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.010s", "nonFatalStatusCodes": ["UNAVAILABLE"]}
		}],
		"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}
	}`)))
	client, stop := testserver.SlowPrimary(interceptor.DialOptions(s)...)
	defer stop()
	reply := must(client.Unary(context.Background(), &testpb.Request{}))
	row := s.Methods()[0]
	fmt.Println("answered by attempt", reply.Attempt, "sent after", row.Delay)
	fmt.Println(row.ThrottleTokens, "of", row.ThrottleMax, "tokens")
	// Output:
	// answered by attempt 1 sent after 10ms
	// 10 of 10 tokens
}

// One call is hedged after its own delay, another not at all.
func ExampleAfter() {
	s := must(hedge.New(hedge.WithReadOnlyMethods("/hedgetest.TestService/*")))
	client, stop := testserver.SlowPrimary(interceptor.DialOptions(s)...)
	defer stop()

	for _, option := range []grpc.CallOption{hedge.After(10 * time.Millisecond), hedge.Off()} {
		reply := must(client.Unary(context.Background(), &testpb.Request{}, option))
		fmt.Println("answered by attempt", reply.Attempt)
	}
	// Output:
	// answered by attempt 1
	// answered by attempt 0
}

// A generated wrapper without call options passes its context on.
func ExampleNewContext() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(time.Second))))
	delete := func(ctx context.Context, key string) error { // the wrapper
		nothing := func(context.Context) (int, error) { return 0, nil }
		_, err := hedge.Do(ctx, s, "dns:///example", "/pkg.Svc/Delete", nothing)
		return err
	}
	_ = delete(context.Background(), "a")
	_ = delete(hedge.NewContext(context.Background(), hedge.Off()), "b")

	stats := s.Stats()
	fmt.Println(stats.Calls, "calls,", stats.Off, "of them not to be hedged")
	// Output: 2 calls, 1 of them not to be hedged
}

// Targets of etcd's client contain a pointer. WithTargetName removes it, so that the next client
// uses the latencies of the previous one.
func ExampleWithTargetName() {
	s := must(hedge.New(hedge.WithIdempotentOnly(), hedge.WithTargetName(func(target string) string {
		if rest, ok := strings.CutPrefix(target, "etcd-endpoints://"); ok {
			_, hosts, _ := strings.Cut(rest, "/")
			return "etcd/" + hosts
		}
		return target
	})))
	for _, target := range []string{"etcd-endpoints://0x3aa56f67e600/host", "etcd-endpoints://0x3aa56f8041e0/host"} {
		nothing := func(context.Context) (int, error) { return 0, nil }
		_, _ = hedge.Do(context.Background(), s, target, "/etcdserverpb.KV/Range", nothing)
	}
	for _, row := range s.Methods() {
		fmt.Println(row.Target, row.Method, row.Calls)
	}
	// Output: etcd/host /etcdserverpb.KV/Range 2
}

// A proxy for arbitrary methods keeps the latencies of the methods in use.
func ExampleWithMaxMethods() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithMaxMethods(1_000)))
	for i := range 10_000 {
		doOnce(s, fmt.Sprintf("/made.Up/Name%d", i))
	}
	fmt.Println(len(s.Methods()) <= 1_000, s.Stats().Calls)
	// Output: true 10000
}

// The totals show the effect and the cost of hedging.
func ExampleScheduler_Stats() {
	s := must(hedge.New(
		hedge.WithReadOnlyMethods("/hedgetest.TestService/*"), hedge.WithWarmup(20, 10*time.Millisecond)))
	client, stop := testserver.SlowPrimary(interceptor.DialOptions(s)...)
	defer stop()
	must(client.Unary(context.Background(), &testpb.Request{}))
	stats := s.Stats()
	fmt.Printf("%d calls, %d hedged, %d won by a hedge, extra load %.0f%%\n",
		stats.Calls, stats.Hedged, stats.HedgeWins, 100*stats.HedgeRate())
	// Output: 1 calls, 1 hedged, 1 won by a hedge, extra load 100%
}

// Each row has the learned latencies and the delay of a method.
func ExampleScheduler_Methods() {
	s := must(hedge.New(hedge.WithReadOnlyMethods("/cache/lookup")))
	for range 20 { // the default warm-up
		doOnce(s, "/cache/lookup")
	}
	for _, row := range s.Methods() {
		fmt.Println(row.Target, row.Method, "calls:", row.Calls, "hedged after:", row.Delay)
	}
	// Output: dns:///example /cache/lookup calls: 20 hedged after: 1ms
}

// The kill switch takes effect on the next call.
func ExampleScheduler_Pause() {
	s := must(hedge.New(hedge.WithReadOnlyMethods("/hedgetest.TestService/*")))
	client, stop := testserver.SlowPrimary(interceptor.DialOptions(s)...)
	defer stop()

	s.Pause()
	reply := must(client.Unary(context.Background(), &testpb.Request{}, hedge.After(0)))
	s.Resume()
	fmt.Println("answered by attempt", reply.Attempt)
	// Output: answered by attempt 0
}

// Do hedges any call, such as one over HTTP, to a database or to a cache.
func ExampleDo() {
	s := must(hedge.New(hedge.WithReadOnlyMethods("/store/read"), hedge.WithWarmup(20, 10*time.Millisecond)))
	slow := make(chan struct{}, 1)
	slow <- struct{}{} // the first attempt is slow
	ctx := context.Background()
	value, err := hedge.Do(ctx, s, "replicas", "/store/read", func(ctx context.Context) (string, error) {
		select {
		case <-slow:
			<-ctx.Done() // until the hedge has won
			return "", ctx.Err()
		default:
			return "from a fast replica", nil
		}
	})
	fmt.Println(value, err)
	// Output: from a fast replica <nil>
}

// A handler distinguishes hedges from primaries, so that a busy server can turn hedges away.
func ExamplePreviousAttempts() {
	primary := context.Background() // of handlers
	hedged := metadata.NewIncomingContext(primary, metadata.Pairs("grpc-previous-rpc-attempts", "1"))
	fmt.Println(hedge.PreviousAttempts(primary), hedge.PreviousAttempts(hedged))
	// Output: 0 1
}

// Each class of requests, here by size or by tenant, has its own delay.
func ExampleWithClass() {
	type tenant struct{}
	of := func(ctx context.Context, method string, request any) string {
		name, _ := ctx.Value(tenant{}).(string)
		return name
	}
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithClass(of)))
	for _, name := range []string{"batch", "web"} {
		ctx := context.WithValue(context.Background(), tenant{}, name)
		for range 50 {
			_, _ = hedge.Do(ctx, s, "dns:///example", "/pkg.Svc/Get", func(context.Context) (string, error) {
				return "", nil
			})
		}
	}
	for _, c := range s.Methods()[0].Classes {
		fmt.Println(c.Class, "is hedged after", c.Delay)
	}
	// Output:
	// batch is hedged after 1ms
	// web is hedged after 1ms
}

func ExampleBySize() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithClass(hedge.BySize)))
	call := interceptor.Unary(s)
	for _, text := range []string{"a short one", "a request that is longer than sixty-four bytes, with some more"} {
		_ = call(context.Background(), "/pkg.Svc/Get", wrapperspb.String(text), &wrapperspb.StringValue{}, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil })
	}
	for _, c := range s.Methods()[0].Classes {
		fmt.Println(c.Class)
	}
	// Output:
	// <16B
	// <256B
}

// One call in ten stays unhedged, to measure the gain of the others.
func ExampleWithControl() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(time.Millisecond)),
		hedge.WithBudgetPercent(100), hedge.WithControl(10)))
	for range 300 {
		ctx := context.Background()
		_, _ = hedge.Do(ctx, s, "dns:///example", "/pkg.Svc/Get", func(ctx context.Context) (string, error) {
			if md, _ := metadata.FromOutgoingContext(ctx); len(md.Get("grpc-previous-rpc-attempts")) == 0 {
				time.Sleep(4 * time.Millisecond) // every primary is slow
			}
			return "value", ctx.Err()
		})
	}
	gain := s.Methods()[0].Gain
	fmt.Println(gain.Control > 10 && gain.Control < 60, gain.Calls > 200)
	fmt.Println("enough for intervals:", gain.Measured) // after ten minutes
	// Output:
	// true true
	// enough for intervals: false
}
