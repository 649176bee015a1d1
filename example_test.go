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

	s, err := hedge.New(hedge.WithReadOnlyMethods("/pkg.Svc/Get*", "/pkg.Svc/List*")) // nothing to tune
	if err != nil {
		panic(err)
	}
	conn, err := grpc.NewClient(target, creds,
		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)),
		grpc.WithChainStreamInterceptor(stream.Interceptor(s)))
	if err != nil {
		panic(err)
	}
	defer conn.Close()

	fmt.Println(conn.Target())
	// Output: dns:///localhost:50051
}

// New asks which methods may run twice: a hedged write may be carried out twice.
func ExampleWithAllMethods() {
	_, err := hedge.New()
	fmt.Println(err)
	_, err = hedge.New(hedge.WithAllMethods()) // each of them may
	fmt.Println(err)
	// Output:
	// hedge: New: no option says which methods may run twice; give one of WithIdempotentOnly, WithReadOnlyMethods, WithMethods, WithServiceConfig and WithAllMethods
	// <nil>
}

// Where the .proto files do not say which methods only read, the client can.
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

// A bad option is found at construction, and all bad ones are named.
func ExampleNew() {
	_, err := hedge.New(
		hedge.WithIdempotentOnly(),
		hedge.WithTrigger(hedge.Percentile(95)),
		hedge.WithMaxHedges(7))
	fmt.Println(err)
	// Output:
	// hedge: WithTrigger(Percentile(95)): the quantile must lie between 0 and 1, both excluded
	// hedge: WithMaxHedges(7): the number of hedges must be 0 to 4
}

// A trigger other than the default.
func ExampleWithTrigger() {
	for _, trigger := range []hedge.Trigger{
		hedge.Auto(), // the default: what the budget can do best
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
	// Percentile(95) hedge: WithTrigger(Percentile(95)): the quantile must lie between 0 and 1, both excluded
}

// What hedging would do to real traffic can be seen before any hedge is sent.
func ExampleWithDryRun() {
	s := must(hedge.New(hedge.WithMethods("/pkg.Svc/Get*"), hedge.WithDryRun(true)))
	for i := range 1000 { // the client's calls, of which one in thirty is slow
		hedge.Do(context.Background(), s, "dns:///example", "/pkg.Svc/Get", func(context.Context) (int, error) {
			if i%30 == 0 {
				time.Sleep(20 * time.Millisecond)
			}
			return 0, nil
		})
	}
	row := s.Methods()[0]
	fmt.Println("hedges sent:", row.Hedges)
	for _, f := range row.Forecasts {
		fmt.Printf("a budget of %v%% would improve p99: %v\n", f.BudgetPercent, f.Tail < f.UnhedgedTail/2)
	}
	// Output:
	// hedges sent: 0
	// a budget of 2% would improve p99: false
	// a budget of 5% would improve p99: true
	// a budget of 10% would improve p99: true
	// a budget of 20% would improve p99: true
}

// Only what may run twice should be hedged.
func ExampleWithIdempotentOnly() {
	s, err := hedge.New(
		hedge.WithIdempotentOnly(),                         // what its .proto file calls safe to repeat
		hedge.WithMethods("/hedgetest.TestService/Unary*")) // and is named so
	if err != nil {
		panic(err)
	}
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

// A team's gRPC service config says which methods are hedged, and how; all others are left alone.
func ExampleWithServiceConfig() {
	s := must(hedge.New(hedge.WithServiceConfig(`{
		"methodConfig": [{
			"name": [{"service": "hedgetest.TestService", "method": "Unary"}],
			"hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.010s", "nonFatalStatusCodes": ["UNAVAILABLE"]}
		}],
		"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}
	}`)))
	client, stop := slowPrimary(s)
	defer stop()
	reply := must(client.Unary(context.Background(), &testpb.Request{Id: 2}))
	row := s.Methods()[0]
	fmt.Println("answered by attempt", reply.Attempt, "sent after", row.Delay)
	fmt.Println(row.ThrottleTokens, "of", row.ThrottleMax, "tokens")

	_, err := hedge.New(hedge.WithServiceConfig(`{"methodConfig": [{
		"name": [{"service": "hedgetest.TestService", "method": "Unary"}],
		"hedgingPolicy": {"maxAttempts": 1}}]}`))
	fmt.Println(err)
	// Output:
	// answered by attempt 1 sent after 10ms
	// 10 of 10 tokens
	// hedge: WithServiceConfig: methodConfig[0] [hedgetest.TestService/Unary]: hedgingPolicy.maxAttempts: 1 is not a whole number above 1
}

// slowPrimary starts a server whose primaries take half a second and whose hedges answer at once.
func slowPrimary(s *hedge.Scheduler) (testpb.TestServiceClient, func()) {
	cluster := must(testserver.Start(testserver.Config{Name: "example", Script: func(a testserver.Attempt) testserver.Plan {
		if a.Number == 0 && a.ID > 1 {
			return testserver.Plan{Delay: 500 * time.Millisecond}
		}
		return testserver.Plan{}
	}}))
	conn := must(cluster.Client(grpc.WithChainUnaryInterceptor(interceptor.Unary(s))))
	client := testpb.NewTestServiceClient(conn)
	if _, err := client.Unary(context.Background(), &testpb.Request{Id: 1}, hedge.Off()); err != nil { // connects
		panic(err)
	}
	return client, cluster.Close
}

// One call is hedged after a delay of its own, another not at all.
func ExampleAfter() {
	s := must(hedge.New(hedge.WithReadOnlyMethods("/hedgetest.TestService/*")))
	client, stop := slowPrimary(s)
	defer stop()

	for _, option := range []grpc.CallOption{hedge.After(10 * time.Millisecond), hedge.Off()} {
		reply := must(client.Unary(context.Background(), &testpb.Request{Id: 2}, option))
		fmt.Println("answered by attempt", reply.Attempt)
	}
	// Output:
	// answered by attempt 1
	// answered by attempt 0
}

// A generated wrapper that takes no call options passes its context on.
func ExampleNewContext() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(time.Second))))
	delete := func(ctx context.Context, key string) error { // the wrapper
		_, err := hedge.Do(ctx, s, "dns:///example", "/pkg.Svc/Delete", func(context.Context) (int, error) { return 0, nil })
		return err
	}
	_ = delete(context.Background(), "a")
	_ = delete(hedge.NewContext(context.Background(), hedge.Off()), "b")

	stats := s.Stats()
	fmt.Println(stats.Calls, "calls,", stats.Off, "of them not to be hedged")
	// Output: 2 calls, 1 of them not to be hedged
}

// The targets of etcd's client hold a pointer. Without it the next client finds what the one before has learned.
func ExampleWithTargetName() {
	s := must(hedge.New(hedge.WithIdempotentOnly(), hedge.WithTargetName(func(target string) string {
		if rest, ok := strings.CutPrefix(target, "etcd-endpoints://"); ok {
			_, hosts, _ := strings.Cut(rest, "/")
			return "etcd/" + hosts
		}
		return target
	})))
	for _, target := range []string{"etcd-endpoints://0x3aa56f67e600/host", "etcd-endpoints://0x3aa56f8041e0/host"} {
		_, _ = hedge.Do(context.Background(), s, target, "/etcdserverpb.KV/Range", func(context.Context) (int, error) { return 0, nil })
	}
	for _, row := range s.Methods() {
		fmt.Println(row.Target, row.Method, row.Calls)
	}
	// Output: etcd/host /etcdserverpb.KV/Range 2
}

// A proxy that passes on whatever methods its clients ask for keeps what it knows of those in use.
func ExampleWithMaxMethods() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithMaxMethods(1_000)))
	call := func(method string) {
		doOnce(s, method)
	}
	for i := range 10_000 {
		call(fmt.Sprintf("/made.Up/Name%d", i))
		if i%100 == 0 {
			call("/pkg.Svc/Get")
		}
	}
	for _, row := range s.Methods() {
		if row.Method == "/pkg.Svc/Get" {
			fmt.Println(row.Method, row.Calls)
		}
	}
	fmt.Println("calls:", s.Stats().Calls)
	// Output:
	// /pkg.Svc/Get 100
	// calls: 10100
}

// The totals say what hedging does and what it costs.
func ExampleScheduler_Stats() {
	s := must(hedge.New(hedge.WithReadOnlyMethods("/hedgetest.TestService/*"), hedge.WithWarmup(20, 10*time.Millisecond)))
	client, stop := slowPrimary(s)
	defer stop()
	if _, err := client.Unary(context.Background(), &testpb.Request{Id: 2}); err != nil {
		panic(err)
	}

	stats := s.Stats()
	fmt.Printf("%d calls, %d hedged, %d won by a hedge, extra load %.0f%%\n",
		stats.Calls, stats.Hedged, stats.HedgeWins, 100*stats.HedgeRate())
	// Output: 2 calls, 1 hedged, 1 won by a hedge, extra load 50%
}

// Per target and method: what was learned and when a hedge is due.
func ExampleScheduler_Methods() {
	s := must(hedge.New(hedge.WithReadOnlyMethods("/cache/lookup")))
	for range 20 { // the default warm-up
		_, _ = hedge.Do(context.Background(), s, "cache", "/cache/lookup", func(context.Context) (string, error) {
			return "value", nil
		})
	}
	for _, row := range s.Methods() {
		fmt.Println(row.Target, row.Method, "calls:", row.Calls, "hedged after:", row.Delay)
	}
	// Output: cache /cache/lookup calls: 20 hedged after: 1ms
}

// The kill switch takes effect on the next call.
func ExampleScheduler_Pause() {
	s := must(hedge.New(hedge.WithReadOnlyMethods("/hedgetest.TestService/*")))
	client, stop := slowPrimary(s)
	defer stop()

	s.Pause()
	reply := must(client.Unary(context.Background(), &testpb.Request{Id: 2}, hedge.After(0)))
	s.Resume()
	fmt.Println("answered by attempt", reply.Attempt)
	// Output: answered by attempt 0
}

// Any call can be hedged: here one over HTTP, a database, a cache.
func ExampleDo() {
	s := must(hedge.New(hedge.WithReadOnlyMethods("/store/read"), hedge.WithWarmup(20, 10*time.Millisecond)))
	slow := make(chan struct{}, 1)
	slow <- struct{}{} // the first attempt is slow
	value, err := hedge.Do(context.Background(), s, "replicas", "/store/read", func(ctx context.Context) (string, error) {
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

// A handler can tell a hedge from a primary, and do without it when it is busy.
func ExamplePreviousAttempts() {
	handle := func(ctx context.Context) {
		if n := hedge.PreviousAttempts(ctx); n > 0 {
			fmt.Println("hedge", n)
		} else {
			fmt.Println("primary")
		}
	}
	handle(context.Background())
	handle(metadata.NewIncomingContext(context.Background(), metadata.Pairs("grpc-previous-rpc-attempts", "1")))
	// Output:
	// primary
	// hedge 1
}

// Cheap requests are hedged sooner than costly ones, and so are a tenant's own.
func ExampleWithClass() {
	type tenant struct{}
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithClass(func(ctx context.Context, method string, request any) string {
		name, _ := ctx.Value(tenant{}).(string)
		return name
	})))
	for _, name := range []string{"batch", "web"} {
		ctx := context.WithValue(context.Background(), tenant{}, name)
		for range 50 {
			_, _ = hedge.Do(ctx, s, "dns:///example", "/pkg.Svc/Get", func(context.Context) (string, error) { return "", nil })
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
	for _, text := range []string{"a short one", "a request that is longer than sixty-four bytes, of which there may be many"} {
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

// One call in ten is left alone, to see what hedging does for the others.
func ExampleWithControl() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(time.Millisecond)),
		hedge.WithBudgetPercent(100), hedge.WithControl(10)))
	for range 300 {
		_, _ = hedge.Do(context.Background(), s, "dns:///example", "/pkg.Svc/Get", func(ctx context.Context) (string, error) {
			if md, _ := metadata.FromOutgoingContext(ctx); len(md.Get("grpc-previous-rpc-attempts")) == 0 {
				time.Sleep(4 * time.Millisecond) // every primary is slow
			}
			return "value", ctx.Err()
		})
	}
	gain := s.Methods()[0].Gain
	fmt.Println("in the control group:", gain.Control > 10 && gain.Control < 60)
	fmt.Println("the others:", gain.Calls > 200)
	fmt.Println("enough for intervals:", gain.Measured) // after ten minutes
	// Output:
	// in the control group: true
	// the others: true
	// enough for intervals: false
}
