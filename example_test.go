package hedge_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
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

// The client selects the read-only methods, because the .proto files do not.
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

// The triggers, and their printed form.
func ExampleWithTrigger() {
	for _, trigger := range []hedge.Trigger{
		hedge.Auto(), // the default
		hedge.Auto(hedge.NoLaterThan(2 * time.Second)), // hedge n after 2n seconds at the latest
		hedge.Percentile(0.95),                         // later than 95 in 100 primaries
		hedge.Fixed(20 * time.Millisecond),             // whatever is learned
		hedge.Percentile(95),
	} {
		_, err := hedge.New(hedge.WithIdempotentOnly(), hedge.WithTrigger(trigger))
		fmt.Println(trigger, err)
	}
	// Output:
	// Auto() <nil>
	// Auto(NoLaterThan(2s)) <nil>
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

// The call is hedged after its own delay.
func ExampleAfter() {
	s := must(hedge.New(hedge.WithReadOnlyMethods("/hedgetest.TestService/*")))
	client, stop := testserver.SlowPrimary(interceptor.DialOptions(s)...)
	defer stop()

	reply := must(client.Unary(context.Background(), &testpb.Request{}, hedge.After(10*time.Millisecond)))
	fmt.Println("answered by attempt", reply.Attempt)
	// Output: answered by attempt 1
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

// A proxy for arbitrary methods learns a thousand of them. Calls of the others count under one name.
func ExampleWithMaxMethods() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithMaxMethods(1_000)))
	for i := range 10_000 {
		doOnce(s, fmt.Sprintf("/made.Up/Name%d", i))
	}
	rows := s.Methods()
	fmt.Println(len(rows), rows[0].Method, rows[0].Calls)
	// Output: 1001 (other) 9000
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
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(0)))) // hedges all calls at once
	s.Pause()
	attempts := 0
	doOnce(s, "/pkg.Svc/Get", func(context.Context) (string, error) { attempts++; return "answer", nil })
	s.Resume()
	fmt.Println(attempts, "attempt")
	// Output: 1 attempt
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

// Hedges ask another provider.
func ExampleDo_elsewhere() {
	s := must(hedge.New(hedge.WithReadOnlyMethods("/llm/Chat"), hedge.WithFailover()))
	askA := func(context.Context) (string, error) { return "", status.Error(codes.Unavailable, "A is down") }
	askB := func(context.Context) (string, error) { return "B's answer", nil }
	fmt.Println(hedge.Do(context.Background(), s, "llm", "/llm/Chat", askA, askB))
	// Output: B's answer <nil>
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
		fmt.Println(c.Class, "is hedged after", c.Delay.Round(time.Millisecond))
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

// doOnce makes one call of a method with hedge.Do, and returns its answer.
func doOnce(s *hedge.Scheduler, method string, attempt ...func(context.Context) (string, error)) string {
	answer := func(context.Context) (string, error) { return "answer", nil }
	if len(attempt) > 0 {
		answer = attempt[0]
	}
	value, err := hedge.Do(context.Background(), s, "dns:///example", method, answer)
	if err != nil {
		return status.Code(err).String()
	}
	return value
}

// must returns value, or panics if err is not nil.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A call of a method that no pattern matches is made without hedging.
func ExampleWithMethods() {
	s := must(hedge.New(hedge.WithMethods("/pkg.Svc/Get*", "/pkg.Other/List")))
	doOnce(s, "/pkg.Svc/GetUser")
	doOnce(s, "/pkg.Svc/DeleteUser")
	fmt.Println(s.Stats().Calls, "calls,", s.Stats().NotSelected, "not selected")
	// Output: 2 calls, 1 not selected
}

// A budget of 2 hedges per 100 calls.
func ExampleWithBudgetPercent() {
	_, err := hedge.New(hedge.WithAllMethods(), hedge.WithBudgetPercent(2))
	fmt.Println(err)
	_, err = hedge.New(hedge.WithAllMethods(), hedge.WithBudgetPercent(-1))
	fmt.Println(err)
	// Output:
	// <nil>
	// hedge: WithBudgetPercent(-1): must be 0 to 400
}

// With no hedges allowed, the scheduler still learns.
func ExampleWithMaxHedges() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithMaxHedges(0)))
	doOnce(s, "/pkg.Svc/Get")
	_, known := s.Latency("dns:///example", "/pkg.Svc/Get", 0.5)
	fmt.Println(known, s.Stats().Hedges)
	// Output: true 0
}

// Methods with latencies of microseconds are not hedged before 5 ms.
func ExampleWithMinDelay() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithMinDelay(5*time.Millisecond)))
	for range 100 {
		doOnce(s, "/pkg.Svc/Get")
	}
	fmt.Println(s.Methods()[0].Delay >= 5*time.Millisecond)
	// Output: true
}

// During the first 100 calls of a method, hedges are due after 50 ms.
func ExampleWithWarmup() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithWarmup(100, 50*time.Millisecond)))
	doOnce(s, "/pkg.Svc/Get")
	fmt.Println(s.Stats().Warmup, s.Methods()[0].Delay) // 0: no delay has been learned
	// Output: 1 0s
}

// A primary that fails is replaced at once, before its hedge would be due.
func ExampleWithFailover() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithFailover(),
		hedge.WithTrigger(hedge.Fixed(time.Hour))))
	attempts := make(chan int, 2)
	attempts <- 0
	attempts <- 1
	fmt.Println(doOnce(s, "/pkg.Svc/Get", func(context.Context) (string, error) {
		if <-attempts == 0 {
			return "", status.Error(codes.Unavailable, "the connection is broken")
		}
		return "the hedge's answer", nil
	}))
	fmt.Println(s.Stats().Failovers)
	// Output:
	// the hedge's answer
	// 1
}

// Only UNAVAILABLE is non-fatal: every other error of the primary is returned at once.
func ExampleWithNonFatalCodes() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(time.Millisecond)),
		hedge.WithNonFatalCodes(codes.Unavailable)))
	hedged := make(chan struct{})
	attempts := make(chan int, 2)
	attempts <- 0
	attempts <- 1
	fmt.Println(doOnce(s, "/pkg.Svc/Get", func(context.Context) (string, error) {
		if <-attempts == 1 { // the hedge
			close(hedged)
			return "the hedge's answer", nil
		}
		<-hedged // the primary fails while the hedge is in flight
		return "", status.Error(codes.Unavailable, "try another server")
	}))
	// Output: the hedge's answer
}

// The limit of a server that closes connections after 200 resets in 30 seconds, Netty's default.
func ExampleWithHedgeLimit() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithHedgeLimit(200, 30*time.Second)))
	doOnce(s, "/pkg.Svc/Get")
	r := s.Methods()[0].Resets
	fmt.Println("at most", r.Limit, "hedges in", r.Per)
	_, err := hedge.New(hedge.WithAllMethods(), hedge.WithHedgeLimit(0, time.Second))
	fmt.Println(err)
	// Output:
	// at most 200 hedges in 30s
	// hedge: WithHedgeLimit(0, 1s): must be at least 1 hedge, in at least 1ms
}

// Latencies are forgotten after five minutes instead of 30 seconds, for rarely called methods.
func ExampleWithWindow() {
	_, err := hedge.New(hedge.WithAllMethods(), hedge.WithWindow(5*time.Minute))
	fmt.Println(err)
	_, err = hedge.New(hedge.WithAllMethods(), hedge.WithWindow(time.Millisecond))
	fmt.Println(err)
	// Output:
	// <nil>
	// hedge: WithWindow(1ms): must be at least 10ms
}

// Any quantile of a method's primaries.
func ExampleScheduler_Latency() {
	s := must(hedge.New(hedge.WithAllMethods()))
	doOnce(s, "/pkg.Svc/Get", func(context.Context) (string, error) {
		time.Sleep(5 * time.Millisecond)
		return "answer", nil
	})
	p999, known := s.Latency("dns:///example", "/pkg.Svc/Get", 0.999)
	fmt.Println(known, p999 >= 5*time.Millisecond)
	_, known = s.Latency("dns:///example", "/pkg.Svc/Put", 0.999)
	fmt.Println(known)
	// Output:
	// true true
	// false
}

// The client hedges even if hedges may exhaust a rate limit.
func ExampleWithGuard() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithGuard(false)))
	doOnce(s, "/pkg.Svc/Get", func(context.Context) (string, error) {
		return "", status.Error(codes.ResourceExhausted, "quota exceeded")
	})
	fmt.Println(s.Methods()[0].Guard.Share)
	// Output: 1
}

// A replica that lags behind has no orders yet. Its answer does not end the call: another replica
// is asked at once.
func ExampleWithAcceptable() {
	s := must(hedge.New(
		hedge.WithReadOnlyMethods("/shop.Orders/List"),
		hedge.WithAcceptable(func(_ context.Context, _ string, reply any, err error) bool {
			orders, ok := reply.([]string)
			return !ok || len(orders) > 0
		}),
		hedge.WithTrigger(hedge.Fixed(time.Second)), // long: hedges are sent for the answers alone
	))
	replicas := make(chan []string, 2)
	replicas <- nil // lags behind
	replicas <- []string{"a bicycle"}
	orders, err := hedge.Do(context.Background(), s, "shop", "/shop.Orders/List",
		func(context.Context) ([]string, error) { return <-replicas, nil })
	fmt.Println(orders, err, s.Stats().Rejected)
	// Output: [a bicycle] <nil> 1
}

// A client calls Header before the first RecvMsg, as Bigtable's does, and the server sends headers
// at once. Without WithWaitForMessage the stuck primary's headers would decide the stream.
func ExampleWithWaitForMessage() {
	s := must(hedge.New(
		hedge.WithReadOnlyMethods("/hedgetest.TestService/*"),
		hedge.WithWarmup(20, 10*time.Millisecond), // the example is too short to learn a delay
		hedge.WithWaitForMessage("/hedgetest.TestService/Server*"),
	))
	client, stop := testserver.SlowPrimary(interceptor.DialOptions(s)...)
	defer stop()

	rows := must(client.ServerStream(context.Background(), &testpb.Request{Messages: 1}))
	if _, err := rows.Header(); err != nil { // waits for the first row
		panic(err)
	}
	row := must(rows.Recv())
	fmt.Println("row", row.Sequence, "of attempt", row.Attempt)
	// Output: row 0 of attempt 1
}

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

// Report the outcome of one call.
func ExampleReport() {
	s := must(hedge.New(
		hedge.WithReadOnlyMethods("/hedgetest.TestService/*"),
		hedge.WithTrigger(hedge.Fixed(20*time.Millisecond))))
	client, stop := testserver.SlowPrimary(interceptor.DialOptions(s)...)
	defer stop()
	var outcome stats.Outcome
	must(client.Unary(context.Background(), &testpb.Request{}, hedge.Report(&outcome)))
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
	for range 20 { // the budget begins with one hedge
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

// An expensive method has a small budget of its own, and another method is never hedged.
func ExampleWithMethodOptions() {
	s := must(hedge.New(
		hedge.WithAllMethods(),
		hedge.WithMethodOptions("/pkg.Svc/Render*", hedge.WithBudgetPercent(2)),
		hedge.WithMethodOptions("/pkg.Svc/Watch", hedge.WithOff(true)),
	))
	doOnce(s, "/pkg.Svc/RenderPage")
	doOnce(s, "/pkg.Svc/Watch")
	for _, row := range s.Methods() {
		fmt.Println(row.Method, row.Rules, "off:", row.Off)
	}
	// Output:
	// /pkg.Svc/RenderPage [/pkg.Svc/Render*] off: 0
	// /pkg.Svc/Watch [/pkg.Svc/Watch] off: 1
}

// Backends in another region get at most one hedge per call, and a throttle.
func ExampleWithTargetOptions() {
	_, err := hedge.New(
		hedge.WithAllMethods(),
		hedge.WithTargetOptions("dns:///eu-*", hedge.WithMaxHedges(1),
			hedge.WithServiceConfig(`{"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}}`)),
	)
	fmt.Println(err)
	_, err = hedge.New(
		hedge.WithAllMethods(),
		hedge.WithTargetOptions("dns:///eu-*", hedge.WithWindow(time.Minute)),
	)
	fmt.Println(err)
	// Output:
	// <nil>
	// hedge: WithTargetOptions("dns:///eu-*"): WithWindow cannot be set for a target
}

// One method is off; the other options stay unchanged.
func ExampleWithOff() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithMethodOptions("/pkg.Svc/Pay", hedge.WithOff(true))))
	doOnce(s, "/pkg.Svc/Pay")
	fmt.Println(s.Stats().Off)
	// Output: 1
}

// The budget is doubled at run time. An error changes nothing.
func ExampleScheduler_Update() {
	s := must(hedge.New(hedge.WithAllMethods()))
	fmt.Println(s.Update(hedge.WithAllMethods(), hedge.WithBudgetPercent(20)))
	fmt.Println(s.Update(hedge.WithAllMethods(), hedge.WithBudgetPercent(2000)))
	// Output:
	// <nil>
	// hedge: WithBudgetPercent(2000): must be 0 to 400
}
