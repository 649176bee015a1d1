package stats_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/stats"
)

// The extra load is the number of hedges for each call.
func ExampleCounts_HedgeRate() {
	fmt.Println(stats.Counts{Calls: 200, Hedges: 18}.HedgeRate())
	// Output: 0.09
}

// Hedges use up a server's quota. They stop at once, and come back within minutes.
func ExampleGuard() {
	s, err := hedge.New(hedge.WithAllMethods(), hedge.WithWarmup(100, 10*time.Millisecond))
	if err != nil {
		panic(err)
	}
	var attempts atomic.Int64
	_, _ = hedge.Do(context.Background(), s, "dns:///example", "/pkg.Svc/Get", func(context.Context) (string, error) {
		if attempts.Add(1) > 1 { // the hedge
			return "", status.Error(codes.ResourceExhausted, "quota exceeded")
		}
		time.Sleep(50 * time.Millisecond)
		return "answer", nil
	})
	guard := s.Methods()[0].Guard
	fmt.Println(guard.Share)
	fmt.Println(guard.Reason)
	// Output:
	// 0
	// hedges failed with RESOURCE_EXHAUSTED, so fewer are sent; their share grows back within minutes
}
