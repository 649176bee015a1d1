package registry

import (
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/grpchedge/hedge/stats"
)

// Counters are the counts of one method. Counts that every call changes are atomics. Counts of
// hedges change together, so they share a lock, which only late calls take. Flush must be called
// after each change: it moves the counts of a removed method to the registry's departed counts.
type Counters struct {
	ofCalls

	left     atomic.Bool // the method was removed
	departed *Counters   // of all removed methods

	mu     sync.Mutex
	hedges stats.Counts // and, of departed, all counts
}

// ofCalls are the counts that change one by one, with their names in stats.Counts.
type ofCalls struct {
	Calls, Warmup, Paused, Off, NotSelected, NoDescriptor, NotReplayable, UnknownOption, PassedThrough, Received,
	SameBackend, Control, Failed, FailedHedged, ControlFailed atomic.Int64
}

// inCounts has the index in stats.Counts of each field of ofCalls.
var inCounts = func() (indices []int) {
	for i := range reflect.TypeFor[ofCalls]().NumField() {
		field, _ := reflect.TypeFor[stats.Counts]().FieldByName(reflect.TypeFor[ofCalls]().Field(i).Name)
		indices = append(indices, field.Index[0])
	}
	return indices
}()

// Update changes the counts of hedges in one step.
func (c *Counters) Update(change func(*stats.Counts)) {
	c.mu.Lock()
	change(&c.hedges)
	c.mu.Unlock()
	c.Flush()
}

// activity returns a number that grows with every call.
func (c *Counters) activity() int64 {
	return c.Calls.Load() + c.PassedThrough.Load() + c.Received.Load()
}

// Flush moves the counts if the method was removed.
func (c *Counters) Flush() {
	if c.left.Load() {
		c.departed.Update(func(all *stats.Counts) { add(all, 1, c.read(true)) })
	}
}

// add adds more, times a factor, to a sum. Every field of stats.Counts is a count.
func add(to *stats.Counts, factor int64, more stats.Counts) {
	sum, counts := reflect.ValueOf(to).Elem(), reflect.ValueOf(more)
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + factor*counts.Field(i).Int())
	}
}

// since returns the difference of each count.
func since(now, before stats.Counts) stats.Counts {
	add(&now, -1, before)
	return now
}

// read returns a consistent copy of the counts, and resets them if take is set. A call counts
// before its hedges do, so hedges are read first: there are never more hedged calls than calls.
func (c *Counters) read(take bool) stats.Counts {
	c.mu.Lock()
	s := c.hedges
	if take {
		c.hedges = stats.Counts{}
	}
	c.mu.Unlock()
	counts, sum := reflect.ValueOf(&c.ofCalls).Elem(), reflect.ValueOf(&s).Elem()
	for i := counts.NumField() - 1; i >= 0; i-- { // Calls last
		n := counts.Field(i).Addr().Interface().(*atomic.Int64)
		count := n.Load()
		if take {
			count = n.Swap(0)
		}
		to := sum.Field(inCounts[i])
		to.SetInt(to.Int() + count)
	}
	return s
}

func (c *Counters) HeldBack(why stats.Reason) {
	c.Update(func(s *stats.Counts) {
		if n := countOf[why]; n != nil {
			*n(s)++
		}
	})
}

var countOf = map[stats.Reason]func(*stats.Counts) *int64{
	stats.BudgetExhausted: func(s *stats.Counts) *int64 { return &s.BudgetExhausted },
	stats.NotReady:        func(s *stats.Counts) *int64 { return &s.NotReady },
	stats.NotDrawn:        func(s *stats.Counts) *int64 { return &s.NotDrawn },
	stats.Paused:          func(s *stats.Counts) *int64 { return &s.Paused },
	stats.Throttled:       func(s *stats.Counts) *int64 { return &s.Throttled },
	stats.DeadlineNear:    func(s *stats.Counts) *int64 { return &s.DeadlineNear },
	stats.Guarded:         func(s *stats.Counts) *int64 { return &s.Guarded },
	stats.ResetsSpent:     func(s *stats.Counts) *int64 { return &s.ResetsSpent },
	stats.ClientBusy:      func(s *stats.Counts) *int64 { return &s.ClientBusy },
	stats.OfHedge:         func(s *stats.Counts) *int64 { return &s.OfHedges },
	stats.NotReplayable:   func(s *stats.Counts) *int64 { return &s.NotReplayable },
	stats.UnknownOption:   func(s *stats.Counts) *int64 { return &s.UnknownOption },
}
