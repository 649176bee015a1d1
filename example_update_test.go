package hedge_test

import (
	"context"
	"fmt"
	"time"

	"github.com/grpchedge/hedge"
)

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

// Off for one method, without changing the other options.
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

// A hedge of a call that reads a million rows costs a thousand times as much as one that reads a
// key.
func ExampleWithCost() {
	rows := func(_ context.Context, method string, request any) float64 {
		if method == "/pkg.Svc/Scan" {
			return 1000
		}
		return 1
	}
	s := must(hedge.New(hedge.WithAllMethods(), hedge.WithCost(rows)))
	fmt.Println(doOnce(s, "/pkg.Svc/Scan"))
	// Output: answer
}
