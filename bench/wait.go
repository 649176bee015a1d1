package main

import (
	"context"
	"time"
)

// waitRoughly waits as exactly as the runtime's timers do.
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
