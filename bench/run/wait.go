package run

import (
	"context"
	"time"
)

// waitRoughly waits with the precision of the runtime's timers.
func waitRoughly(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
