//go:build !linux

package run

import (
	"context"
	"time"
)

func waitExactly(ctx context.Context, d time.Duration) error { return waitRoughly(ctx, d) }
