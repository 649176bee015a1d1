package testserver

import (
	"context"
	"sync"
	"sync/atomic"
)

// Counts is what backends counted since the start or the last [Cluster.Reset].
// Each number is exact; read while calls are under way, they may be of slightly
// different moments.
type Counts struct {
	Attempts  int64 // calls and streams that arrived
	Hedges    int64 // attempts of these that carried grpc-previous-rpc-attempts
	Cancelled int64 // attempts canceled before they ended
	Failed    int64 // attempts that ended with a status other than OK, canceled ones excluded
	InFlight  int64 // handlers that run right now; not reset
}

// counters are the live form of Counts.
type counters struct {
	attempts, hedges, cancelled, failed, inFlight atomic.Int64
}

func (c *counters) reset() {
	for _, n := range []*atomic.Int64{&c.attempts, &c.hedges, &c.cancelled, &c.failed} {
		n.Store(0)
	}
}

// Counts returns the counts of all backends together.
func (c *Cluster) Counts() Counts {
	return Counts{
		Attempts:  c.counters.attempts.Load(),
		Hedges:    c.counters.hedges.Load(),
		Cancelled: c.counters.cancelled.Load(),
		Failed:    c.counters.failed.Load(),
		InFlight:  c.counters.inFlight.Load(),
	}
}

// Reset forgets the records and sets the counts to zero. Attempts in flight stay
// so, and count at their end; call it at rest to have whole numbers.
func (c *Cluster) Reset() {
	c.counters.reset()
	c.conn.reset()
	c.records.reset()
}

// WaitIdle returns as soon as no handler runs at any backend, or with the error
// of the context that ends first.
func (c *Cluster) WaitIdle(ctx context.Context) error { return c.idle.wait(ctx) }

// idle counts running handlers and wakes waiters when the count reaches zero.
type idle struct {
	running atomic.Int64
	mu      sync.Mutex
	waiting []chan struct{}
}

func (i *idle) enter() { i.running.Add(1) }

func (i *idle) leave() {
	if i.running.Add(-1) > 0 {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, ch := range i.waiting {
		close(ch)
	}
	i.waiting = nil
}

func (i *idle) wait(ctx context.Context) error {
	// The count is read and the channel registered in one critical section: a handler that brings
	// the count to zero later finds the channel.
	i.mu.Lock()
	if i.running.Load() == 0 {
		i.mu.Unlock()
		return nil
	}
	ch := make(chan struct{})
	i.waiting = append(i.waiting, ch)
	i.mu.Unlock()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
