package engine_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/race"
)

const (
	ms     = time.Millisecond
	target = "dns:///test"
	method = "/pkg.Svc/Get"
)

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

// admit asks whether hedge n of a call of which nothing else has happened may be sent, and otherwise after what time to ask
// again; 0 is never.
func admit(c *engine.Call, n int) (send bool, again time.Duration) {
	e := c.Admit(n, n, new(race.Report))
	if e.Kind == race.HeldBack {
		again = e.Until - c.Age()
	}
	return e.Kind == race.Admitted, again
}
