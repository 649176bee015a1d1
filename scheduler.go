package hedge

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/latency"
	"github.com/grpchedge/hedge/internal/learn"
)

// Scheduler decides, for every call of the connections that share it, when to hedge and whether it may, and
// keeps what it has learned. Its state is per target and, under a target, per full method. One scheduler
// serves any number of connections; all its methods may be called concurrently. It runs no goroutine of its
// own and needs no closing. A nil *Scheduler hedges nothing and knows nothing.
type Scheduler struct {
	config   config
	learning learn.Config
	epoch    time.Time // what the atomics below count from
	paused   atomic.Bool

	targets     sync.Map // name → *target
	connections sync.Map // what WithTargetName was asked about → *target; empty without it
	sweep       atomic.Int64
	memory      latency.Meter // what all entries take

	mu       sync.Mutex // serialises adding and removing targets and methods
	entries  entries
	departed departed
}

// New returns a scheduler. Without options it needs no tuning: see each option for its default. The error
// joins one for every option that is out of range, and names the option and its value. A nil option is
// ignored.
func New(opts ...Option) (*Scheduler, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	s := &Scheduler{config: c, learning: c.learning(), epoch: time.Now()}
	s.sweep.Store(int64(sweepEvery))
	return s, nil
}

// Pause stops hedging, from the next call on, until Resume. Latencies are still learned.
func (s *Scheduler) Pause() {
	if s != nil {
		s.paused.Store(true)
	}
}

// Resume undoes Pause.
func (s *Scheduler) Resume() {
	if s != nil {
		s.paused.Store(false)
	}
}

// Latency returns the quantile q, 0 < q < 1, of what the primaries of a method took over the window. It is
// false when nothing is known of the method. The target is the connection's, or what [WithTargetName] names it.
func (s *Scheduler) Latency(target, method string, q float64) (time.Duration, bool) {
	m := s.named(target).find(method)
	if m == nil {
		return 0, false
	}
	return m.learner.Snapshot(time.Now()).Quantile(q)
}

// PassThrough counts a call that is not hedged because its requests are a stream, which nobody could send again.
func (s *Scheduler) PassThrough(target, method string) {
	if s != nil {
		c := &s.method(target, method, time.Now()).counters
		c.passedThrough.Add(1)
		c.follow()
	}
}

// Conn is what the scheduler asks of the connection that a call uses. *grpc.ClientConn is one.
type Conn interface {
	GetState() connectivity.State
}

// Begin books a call and says how to hedge it. Interceptors call it, and so may the binding of another RPC
// framework; everyone else uses an interceptor, or [Do].
//
// ctx is the caller's context, whose deadline bounds when a hedge is still worth sending. conn may be nil: a
// connection that is always ready. The options, and those that [NewContext] has put into ctx, may hold
// [Off] and [After]; others are ignored.
func (s *Scheduler) Begin(ctx context.Context, target, method string, conn Conn, opts ...grpc.CallOption) Call {
	if s == nil {
		return Call{}
	}
	now := time.Now()
	m := s.method(target, method, now)
	m.counters.calls.Add(1)
	c := Call{scheduler: s, method: m, ctx: ctx, conn: conn, start: now, onlyReads: m.onlyReads, policy: m.policy}
	hedged, described, policy := m.hedged, m.described, m.policy
	c.heeds = policy != nil || m.target.throttle != nil

	o := readCallOptions(ctx, opts)
	switch {
	case o.off:
		m.counters.off.Add(1)
	case s.paused.Load():
		m.counters.paused.Add(1)
	case o.after:
		c.arm(o.delay)
	case !described:
		m.counters.noDescriptor.Add(1)
		c.unlearned = true
	case !hedged, policy == nil && s.config.serviceConfigOnly:
		m.counters.notSelected.Add(1)
		c.unlearned = true
	case policy != nil:
		c.arm(policy.delay)
	case s.config.trigger.kind == fixedTrigger:
		c.arm(s.config.trigger.delay)
	default:
		c.estimate = m.learner.Estimate()
		switch {
		case c.estimate != nil:
			c.arm(c.estimate.Delay)
			if b := c.estimate.Trickle; b != nil {
				b.Earn(now)
			}
		case s.config.warmupDelay > 0:
			m.counters.warmup.Add(1)
			c.arm(s.config.warmupDelay)
		default:
			m.counters.warmup.Add(1)
			m.target.budget.Earn(now)
		}
	}
	m.counters.follow()
	return c
}
