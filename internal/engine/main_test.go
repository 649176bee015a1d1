package engine_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
)

const (
	ms     = time.Millisecond
	target = "dns:///test"
	method = "/pkg.Svc/Get"
)

func newScheduler(t testing.TB, opts ...hedge.Option) *hedge.Scheduler {
	t.Helper()
	s, err := hedge.New(append([]hedge.Option{hedge.WithAllMethods()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// call makes one call of a method whose attempts all take d.
func call(t testing.TB, s *hedge.Scheduler, method string, d time.Duration) {
	t.Helper()
	_, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) {
		select {
		case <-time.After(d):
			return 0, nil
		case <-ctx.Done():
			return 0, status.FromContextError(ctx.Err()).Err()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
