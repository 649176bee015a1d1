package hedge_test

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
)

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

// Without package balancer on the connection no hedge is sent. Calls of Do have no connection.
func ExampleWithOtherBackendOnly() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithOtherBackendOnly(true)))
	doOnce(s, "/pkg.Svc/Get")
	row := s.Methods()[0]
	fmt.Println("backends:", row.Ready, "held back:", row.NoOtherBackend)
	// Output: backends: 0 held back: 0
}

// The limit of a server that closes connections after 200 resets in 30 seconds, Netty's default.
func ExampleWithResetLimit() {
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithResetLimit(200, 30*time.Second)))
	doOnce(s, "/pkg.Svc/Get")
	r := s.Methods()[0].Resets
	fmt.Println("at most", r.Limit, "hedges in", r.Per)
	_, err := hedge.New(hedge.WithAllMethods(), hedge.WithResetLimit(0, time.Second))
	fmt.Println(err)
	// Output:
	// at most 200 hedges in 30s
	// hedge: WithResetLimit(0, 1s): must be at least 1 hedge, in at least 1ms
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

// A client that hedges although hedges may exhaust a rate limit.
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
