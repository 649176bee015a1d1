package registry

import (
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/grpchedge/hedge/stats"
)

// Counters are the counts of one method. Counts that every call changes are atomics. Counts of hedges change together, so they
// share a lock, which only a call that has become slow takes.
//
// When the method is removed from memory, its counts move to the registry's departed counts. Calls in flight may count
// afterwards. So Flush is called after each count: if the method was removed by then, it moves the count. Either leave or
// Flush finds each count, so none is lost, and none is counted twice.
type Counters struct {
	Calls, Warmup, Paused, Off, NotSelected, NoDescriptor, NotReplayable, PassedThrough atomic.Int64

	sameBackend atomic.Int64 // of hedges, by the policy's picks

	left     atomic.Bool // the method was removed
	departed *departed   // the counts of all removed methods

	mu     sync.Mutex
	hedges stats.Counts
	early  earlyShare
}

// Update changes the counts of hedges in one step.
func (c *Counters) Update(change func(*stats.Counts)) {
	c.mu.Lock()
	change(&c.hedges)
	c.mu.Unlock()
	c.Flush()
}

// activity returns a number that grows with every call.
func (c *Counters) activity() int64 { return c.Calls.Load() + c.PassedThrough.Load() }

// leave moves what was counted to the departed counts.
func (c *Counters) leave() {
	c.left.Store(true)
	c.Flush()
}

// Flush moves the counts if the method was removed. It must be called after every change of a count.
func (c *Counters) Flush() {
	if c.left.Load() {
		c.departed.take(c)
	}
}

// add adds counts to others. All fields are counts.
func add(to *stats.Counts, more stats.Counts) {
	sum, counts := reflect.ValueOf(to).Elem(), reflect.ValueOf(more)
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + counts.Field(i).Int())
	}
}

// departed are the counts of methods that were removed from memory.
type departed struct {
	mu    sync.Mutex
	stats stats.Counts
}

func (d *departed) take(c *Counters) {
	d.mu.Lock()
	defer d.mu.Unlock()
	add(&d.stats, c.drain())
}

func (d *departed) read() stats.Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// SameBackendCounter counts hedges sent to a backend that their call had used. It is the [place.Counter] for the policy of package
// balancer.
type SameBackendCounter Counters

func (m *SameBackendCounter) Add(n int64) int64 {
	c := (*Counters)(m)
	sum := c.sameBackend.Add(n)
	c.Flush()
	return sum
}

// read returns one consistent copy.
func (c *Counters) read() stats.Counts {
	return c.collect((*atomic.Int64).Load, func(hedges *stats.Counts) stats.Counts { return *hedges })
}

// drain returns the same, and sets all to 0.
func (c *Counters) drain() stats.Counts {
	return c.collect(
		func(n *atomic.Int64) int64 { return n.Swap(0) },
		func(hedges *stats.Counts) stats.Counts {
			s := *hedges
			*hedges = stats.Counts{}
			return s
		})
}

// collect adds up the counts. A call counts before its hedges do, so hedges are read first: there are never more hedged calls
// than calls.
func (c *Counters) collect(count func(*atomic.Int64) int64, ofHedges func(*stats.Counts) stats.Counts) stats.Counts {
	sameBackend := count(&c.sameBackend) // of hedges that are counted as sent
	c.mu.Lock()
	s := ofHedges(&c.hedges)
	c.mu.Unlock()
	s.SameBackend = sameBackend
	s.Warmup += count(&c.Warmup)
	s.Paused += count(&c.Paused)
	s.Off += count(&c.Off)
	s.NotSelected += count(&c.NotSelected)
	s.NotReplayable += count(&c.NotReplayable)
	s.NoDescriptor += count(&c.NoDescriptor)
	s.PassedThrough += count(&c.PassedThrough)
	s.Calls += count(&c.Calls)
	return s
}

// HeldBack counts a hedge that was not sent.
func (c *Counters) HeldBack(why stats.Reason) {
	c.Update(func(s *stats.Counts) {
		if n := heldBackFor(why, s); n != nil {
			*n++
		}
	})
}

// heldBackFor returns the count of hedges that were not sent for a reason; nil for a reason that is not one of hedges.
func heldBackFor(why stats.Reason, s *stats.Counts) *int64 {
	switch why {
	case stats.BudgetExhausted:
		return &s.BudgetExhausted
	case stats.NotReady:
		return &s.NotReady
	case stats.NoOtherBackend:
		return &s.NoOtherBackend
	case stats.NotDrawn:
		return &s.NotDrawn
	case stats.Paused:
		return &s.Paused
	case stats.Throttled:
		return &s.Throttled
	case stats.PushedBack:
		return &s.PushedBack
	case stats.DeadlineNear:
		return &s.DeadlineNear
	case stats.Guarded:
		return &s.Guarded
	case stats.ResetsSpent:
		return &s.ResetsSpent
	case stats.OfHedge:
		return &s.OfHedges
	}
	return nil
}
