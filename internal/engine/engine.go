// Package engine implements hedge.Scheduler. It keeps the state of every target and method, says when a hedge of a call is
// due and whether it may be sent, and records how the attempts ended.
//
// A hedge.Scheduler holds an [Engine]. The interceptors get it from [Of]. It is internal, so users of the library cannot.
package engine

import (
	"context"
	"github.com/grpchedge/hedge/internal/settings"
	"os"
	"sync"
	"time"

	"go.uber.org/atomic"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/sketch"
	"github.com/grpchedge/hedge/stats"
)

// Engine decides, for every call of the connections that share it, when to hedge and whether it may, and keeps what it
// has learned. Its state is per target and, under a target, per full method. All its methods may be called concurrently.
// It runs no goroutine of its own and needs no closing. A nil *Engine hedges nothing and knows nothing.
type Engine struct {
	sweep atomic.Duration // time since epoch of the next search for idle methods; the first field, for alignment on 32-bit machines

	config atomic.Pointer[configuration] // in force for calls that begin now
	pace   learn.Pace
	epoch  time.Time
	paused atomic.Pointer[pauses] // nil: nothing is

	remembers atomic.Bool // histories are kept

	targets     sync.Map     // name → *target
	connections sync.Map     // a connection's target → *target, with WithTargetName; empty without it
	memory      sketch.Meter // bytes of all entries

	mu       sync.Mutex // serialises adding and removing targets and methods
	entries  entries
	departed departed
}

// New returns an engine that knows only what its configuration has it take over.
func New(c settings.Config) *Engine {
	e := &Engine{epoch: time.Now()}
	known := c.TakenOver
	c.TakenOver = nil // methods have it now
	e.config.Store(e.configure(c))
	e.takeOver(known)
	e.sweep.Store(sweepEvery)
	if disabled(os.Getenv(disabledVariable)) {
		e.pauseBy(PausedBySwitch)
	}
	return e
}

// Of returns the engine of a *hedge.Scheduler; nil for a nil one. Package hedge sets it when the program starts, so that the
// interceptors can get the engine although the scheduler does not export it.
var Of func(scheduler any) *Engine

// Update puts another configuration into force, for calls that begin from now on.
func (e *Engine) Update(c settings.Config) { e.config.Store(e.configure(c)) }

// Latency returns the quantile q, 0 < q < 1, of what the primaries of a method took over the window. It is
// false when nothing is known of the method. The target is the connection's, or what Config.TargetName names it.
func (e *Engine) Latency(target, method string, q float64) (time.Duration, bool) {
	m := e.targetNamed(target).find(method)
	if m == nil {
		return 0, false
	}
	return m.learner.Snapshot(time.Now()).Quantile(q)
}

// PassThrough counts a client-streaming or bidirectional call, which is never hedged. Of the options, only [ReportOption] is
// used.
func (e *Engine) PassThrough(target, method string, opts ...grpc.CallOption) {
	if report := readCallOptions(context.Background(), opts).report; report != nil {
		report(stats.Outcome{Attempts: 1, Reason: stats.NotServerStream})
	}
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
// the options, only [OffOption], [AfterOption] and [ReportOption] are used, and of those in ctx the first two.
func (e *Engine) Begin(ctx context.Context, target, method string, conn Conn, opts ...grpc.CallOption) Call {
	if e == nil {
		return Call{report: readCallOptions(ctx, opts).report}
	}
	now := time.Now()
	m := e.method(target, method, now)
	m.counters.calls.Add(1)
	s := m.settingsNow(e)
	c := Call{engine: e, method: m, settings: s, ctx: ctx, conn: conn, start: now}
	c.payment.open(s, m.target.budget)
	c.tracksFailures = s.policy != nil || s.throttle != nil

	o := readCallOptions(ctx, opts)
	c.report = o.report
	if m.target.firstCalls.saw(s.selected || o.after) {
		c.tellNothingSelected()
	}
	switch {
	case o.off, s.Off:
		m.counters.off.Add(1)
		c.why = stats.SwitchedOff
	case e.pausedBy(m) != "":
		m.counters.paused.Add(1)
		c.why = stats.Paused
	case o.after:
		c.arm(o.delay)
	case !s.described:
		m.counters.noDescriptor.Add(1)
		c.unlearned, c.why = true, stats.NoDescriptor
	case !s.selected:
		m.counters.notSelected.Add(1)
		c.unlearned, c.why = true, stats.NotSelected
	case s.policy != nil:
		c.arm(s.policy.Delay)
	case s.Trigger.Kind == settings.FixedTrigger:
		c.arm(s.Trigger.Delay)
	default:
		if c.estimate = m.learner.EstimateFor(now); c.estimate == nil {
			c.estimate = m.target.first(&m.learner, now)
		}
		switch {
		case c.estimate != nil:
			c.arm(max(c.estimate.Delay, s.MinDelay))
			if b := c.estimate.Trickle; b != nil {
				b.Earn(now, 1)
			}
		case s.WarmupDelay > 0:
			m.counters.warmup.Add(1)
			c.arm(s.WarmupDelay)
		default:
			m.counters.warmup.Add(1)
			c.why = stats.Warmup
			c.payment.earn(now)
		}
	}
	m.counters.follow()
	return c
}
