// Package engine implements hedge.Scheduler. It keeps the state of every target and method, says when a hedge of a call is due
// and whether it may be sent, and records how the attempts ended.
//
// A hedge.Scheduler holds an [Engine]. The interceptors get it from [Of]. It is internal, so users of the library cannot.
package engine

import (
	"context"
	"sync"
	"time"

	"go.uber.org/atomic"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/latency"
	"github.com/grpchedge/hedge/internal/learn"
)

// Engine decides, for every call of the connections that share it, when to hedge and whether it may, and keeps what it
// has learned. Its state is per target and, under a target, per full method. All its methods may be called concurrently.
// It runs no goroutine of its own and needs no closing. A nil *Engine hedges nothing and knows nothing.
type Engine struct {
	sweep atomic.Duration // time since epoch of the next search for idle methods; the first field, for alignment on 32-bit machines

	config   Config
	learning learn.Config
	epoch    time.Time
	paused   atomic.Bool

	targets     sync.Map      // name → *target
	connections sync.Map      // a connection's target → *target, with WithTargetName; empty without it
	memory      latency.Meter // bytes of all entries

	mu       sync.Mutex // serialises adding and removing targets and methods
	entries  entries
	departed departed
}

// New returns an engine that knows nothing yet.
func New(c Config) *Engine {
	e := &Engine{config: c, learning: c.learning(), epoch: time.Now()}
	e.sweep.Store(sweepEvery)
	return e
}

// Of returns the engine of a *hedge.Scheduler; nil for a nil one. Package hedge sets it when the program starts, so that the
// interceptors can get the engine although the scheduler does not export it.
var Of func(scheduler any) *Engine

// Pause stops hedging, from the next call on, until Resume. Latencies are still learned.
func (e *Engine) Pause() {
	if e != nil {
		e.paused.Store(true)
	}
}

// Resume undoes Pause.
func (e *Engine) Resume() {
	if e != nil {
		e.paused.Store(false)
	}
}

// Latency returns the quantile q, 0 < q < 1, of what the primaries of a method took over the window. It is
// false when nothing is known of the method. The target is the connection's, or what Config.TargetName names it.
func (e *Engine) Latency(target, method string, q float64) (time.Duration, bool) {
	m := e.targetNamed(target).find(method)
	if m == nil {
		return 0, false
	}
	return m.learner.Snapshot(time.Now()).Quantile(q)
}

// PassThrough counts a client-streaming or bidirectional call, which is never hedged.
func (e *Engine) PassThrough(target, method string) {
	if e != nil {
		c := &e.method(target, method, time.Now()).counters
		c.passedThrough.Add(1)
		c.follow()
	}
}

// Conn is what the engine asks of the connection that a call uses. *grpc.ClientConn is one.
type Conn interface {
	GetState() connectivity.State
}

// Begin counts a call and returns its Call, whose Plan says whether and when to hedge it.
//
// ctx is the caller's context; its deadline may prevent hedges. A nil conn stands for a connection that is always ready. Of
// the options, and of those in ctx, only [OffOption] and [AfterOption] are used.
func (e *Engine) Begin(ctx context.Context, target, method string, conn Conn, opts ...grpc.CallOption) Call {
	if e == nil {
		return Call{}
	}
	now := time.Now()
	m := e.method(target, method, now)
	m.counters.calls.Add(1)
	c := Call{engine: e, method: m, ctx: ctx, conn: conn, start: now, onlyReads: m.onlyReads, policy: m.policy}
	selected, described, policy := m.selected, m.described, m.policy
	c.heeds = policy != nil || m.target.throttle != nil

	o := readCallOptions(ctx, opts)
	switch {
	case o.off:
		m.counters.off.Add(1)
	case e.paused.Load():
		m.counters.paused.Add(1)
	case o.after:
		c.arm(o.delay)
	case !described:
		m.counters.noDescriptor.Add(1)
		c.unlearned = true
	case !selected, policy == nil && e.config.ServiceConfigOnly:
		m.counters.notSelected.Add(1)
		c.unlearned = true
	case policy != nil:
		c.arm(policy.delay)
	case e.config.Trigger.Kind == FixedTrigger:
		c.arm(e.config.Trigger.Delay)
	default:
		c.estimate = m.learner.EstimateFor(now)
		switch {
		case c.estimate != nil:
			c.arm(c.estimate.Delay)
			if b := c.estimate.Trickle; b != nil {
				b.Earn(now)
			}
		case e.config.WarmupDelay > 0:
			m.counters.warmup.Add(1)
			c.arm(e.config.WarmupDelay)
		default:
			m.counters.warmup.Add(1)
			m.target.budget.Earn(now)
		}
	}
	m.counters.follow()
	return c
}
