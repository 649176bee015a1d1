package testserver

import (
	"context"
	"sync"
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

// A queue serves one attempt for each worker at a time, in the order of their
// arrival. Without workers it serves all at once.
type queue struct {
	workers        chan struct{} // nil without workers
	stopsCancelled bool

	mu      sync.Mutex
	serving int           // workers that are busy
	changed time.Time     // when that was last added to busy
	busy    time.Duration // of all workers together, up to then
}

func (q *queue) start(workers int, stopsCancelled bool) {
	q.stopsCancelled = stopsCancelled
	if workers > 0 {
		q.workers = make(chan struct{}, workers)
	}
}

// serve waits for a worker, occupies it for d, and returns then, or as soon as
// the context ends, with its error. An attempt that is cut short leaves the
// queue. Its worker, if it has one, stays busy for the rest of d, unless
// cancelled work is stopped.
func (q *queue) serve(ctx context.Context, d time.Duration, wait func(context.Context, time.Duration) error) error {
	if q.workers == nil {
		return wait(ctx, d)
	}
	select {
	case q.workers <- struct{}{}: // blocked senders are served in order
	case <-ctx.Done():
		return ctx.Err()
	}
	q.nowServing(1)
	start := time.Now()
	err := wait(ctx, d)
	if rest := d - time.Since(start); err != nil && rest > 0 && !q.stopsCancelled {
		time.AfterFunc(rest, q.release)
	} else {
		q.release()
	}
	return err
}

func (q *queue) release() {
	q.nowServing(-1)
	<-q.workers
}

// nowServing counts workers that become busy or free, and returns for how long
// all together have been busy.
func (q *queue) nowServing(more int) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.busy += time.Duration(q.serving) * now.Sub(q.changed)
	q.serving += more
	q.changed = now
	return q.busy
}

// Busy returns for how long the workers of all backends together have been busy
// since the start, up to now. It is 0 in a cluster without Workers.
func (c *Cluster) Busy() time.Duration {
	var busy time.Duration
	for _, b := range c.backends {
		busy += b.queue.nowServing(0)
	}
	return busy
}
