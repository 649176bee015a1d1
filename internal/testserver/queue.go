package testserver

import (
	"context"
	"time"
)

// wait returns after d, or as soon as the context ends, with its error.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A queue lets so many attempts be served at a time, in the order of their
// arrival. The nil queue serves all at once.
type queue chan struct{}

func newQueue(workers int) queue {
	if workers <= 0 {
		return nil
	}
	return make(queue, workers)
}

// serve waits for a worker, occupies it for d, and returns then, or as soon as
// the context ends, with its error. An attempt that is cut short leaves the
// queue, but not the worker: that stays busy for the rest of d.
func (q queue) serve(ctx context.Context, d time.Duration, wait func(context.Context, time.Duration) error) error {
	if q == nil {
		return wait(ctx, d)
	}
	select {
	case q <- struct{}{}: // blocked senders are served in order
	case <-ctx.Done():
		return ctx.Err()
	}
	start := time.Now()
	err := wait(ctx, d)
	if rest := d - time.Since(start); err != nil && rest > 0 {
		time.AfterFunc(rest, func() { <-q })
	} else {
		<-q
	}
	return err
}
