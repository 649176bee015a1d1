//go:build !linux

package main

import (
	"context"
	"time"
)

func waitExactly(ctx context.Context, d time.Duration) error { return waitRoughly(ctx, d) }
