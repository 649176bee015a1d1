// Package call is one call of a method, from its beginning to its end: when its hedges are due, whether each may be sent, and what
// is counted and learned of it.
package call

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// Call is one call, from Begin to End. The zero Call is never hedged.
//
// A door begins a call, and tells it the request by Inspect. If Hedged returns false, the door makes the call normally. Otherwise it
// races attempts by the Plan, with the call as the race's policy. The door reports the end by End in two cases: the call was not
// raced, or its race ended untouched. In every other case the race has called Book, which does so.
type Call struct {
	feature.CallState // what its features know of it

	method   *registry.Method
	settings *settings.Settings // in force when it began
	class    *registry.Class    // of its request; nil: none

	armed bool // it may be hedged
	dry   bool // it might be hedged but for WithDryRun
	http  bool // it is an HTTP request
	safe  bool // HTTP defines the method of the request as one that only reads

	end      feature.End // what observers are told: a field, as it would be allocated otherwise
	failures uint8       // attempts whose failures have been told, a bit each
	dropped  uint8       // hedges that were paid for, not sent, and refunded

	heldBack stats.Reason        // why a hedge was held back last, so that a reason counts once for a hedge
	why      stats.Reason        // why the last hedge that was due was not sent, or why none can be; for whoever asks
	report   func(stats.Outcome) // of hedge.Report; nil: none
}

// ConnOf returns the target and the connection of a door's cc: nothing for a nil cc, as when a test passes its own invoker.
func ConnOf(cc *grpc.ClientConn) (target string, conn feature.Conn) {
	if cc != nil {
		target, conn = cc.Target(), cc // a nil cc would be a conn that is not nil
	}
	return target, conn
}

// Begin counts a call and returns it. A nil registry hedges nothing.
//
// ctx is the caller's context; its deadline may prevent hedges. A nil conn stands for a connection
// that is always ready. Of the options, only those of this package are used, and of those in ctx
// the first two, [OffOption] and [AfterOption].
func Begin(r *registry.Registry, ctx context.Context, target, method string, conn feature.Conn, opts ...grpc.CallOption) Call {
	o := inContext(ctx).with(opts)
	if r == nil {
		c := Call{report: o.report}
		reportUnhedged(&c)
		return c
	}
	now := time.Now()
	m := r.Method(target, method, now)
	m.NoteNames(conn, o.static)
	m.Counters.Calls.Add(1)
	s := m.Settings()
	c := Call{method: m, settings: s, http: o.http != nil, safe: o.http != nil && o.http.Safe, report: o.report}
	c.Context, c.Conn, c.Start, c.Target, c.Method = ctx, conn, now, m.Target.Name, m.Name
	c.Learns, c.Learned = true, &m.Learner
	c.Payment = feature.Payment{Target: m.Target.Budget, Own: s.Own, Cost: 1, Priced: s.Cost == nil}
	if !s.Off {
		m.Target.CallBegins(o.after || o.selected(s))
	}
	decide(&c, o)
	m.Counters.Flush()
	reportUnhedged(&c)
	return c
}

// decide decides whether the call may be hedged, and after which delay. If not, it counts why.
func decide(c *Call, o options) {
	m, s := c.method, c.settings
	switch {
	case o.off, s.Off:
		m.Counters.Off.Add(1)
		c.Off, c.why = o.off, stats.SwitchedOff
	case s.Pause.Load() != "":
		m.Counters.Paused.Add(1)
		c.why = stats.Paused
	case o.after:
		c.arm(o.delay)
	case !s.Described && o.http == nil:
		m.Counters.NoDescriptor.Add(1)
		c.Learns, c.why = false, stats.NoDescriptor
	case !o.selected(s):
		m.Counters.NotSelected.Add(1)
		c.Learns, c.why = false, stats.NotSelected
	case s.Policy != nil:
		c.arm(s.Policy.Delay)
	case s.Trigger.Kind == settings.FixedTrigger:
		c.arm(s.Trigger.Delay)
	case c.estimate():
		c.arm(c.Delay)
	case s.WarmupDelay > 0:
		m.Counters.Warmup.Add(1)
		c.arm(s.WarmupDelay)
	default:
		m.Counters.Warmup.Add(1)
		c.why = stats.Warmup
		c.Payment.Earn(c.Start)
	}
}

// selected reports whether the options of hedge.New select a call of a method with the given
// settings. WithAllMethods selects an HTTP request only if HTTP allows it to be sent twice, and
// WithIdempotentOnly each of these.
func (o options) selected(s *settings.Settings) bool {
	switch {
	case o.http == nil:
		return s.Selected
	case o.http.Idempotent:
		return s.Selected || !s.Described
	}
	return s.Named
}

// estimate takes the call's delay from what was learned of its class, or its method. It returns false while that is too little.
func (c *Call) estimate() bool {
	l := c.Learner()
	e := l.EstimateFor(c.Start)
	if e == nil {
		e = c.method.Target.First(l, c.Start)
	}
	if e == nil {
		return false
	}
	c.Estimate, c.Delay = e, min(max(e.Delay, c.settings.MinDelay), race.Longest)
	return true
}

// arm makes the call one that may be hedged, and adds its share to the budget.
func (c *Call) arm(delay time.Duration) {
	s := c.settings
	if !s.Unbudgeted() { // hedges that cost nothing must not pay for others
		c.Payment.Earn(c.Start)
	}
	c.MaxHedges = s.MaxHedges
	switch {
	case s.Policy != nil:
		c.MaxHedges = s.Policy.Attempts - 1
	case c.Estimate != nil:
		c.MaxHedges = min(c.Estimate.Hedges, s.MaxHedges)
	}
	c.Delay = min(delay, race.Longest)
	switch {
	case c.MaxHedges == 0 || s.Learning.BudgetPercent == 0:
		c.why = stats.NoHedgesConfigured
	case s.DryRun:
		c.dry, c.why = true, stats.DryRun
	default:
		c.Group = s.Groups.Draw()
		if c.armed = c.Group != feature.Unhedged; !c.armed {
			c.why = stats.InControlGroup
		}
	}
}

// Hedged reports whether the call may be hedged.
func (c *Call) Hedged() bool { return c.armed }

// ByPolicy reports whether a hedgingPolicy says how the call is hedged.
func (c *Call) ByPolicy() bool { return c.settings != nil && c.settings.Policy != nil }

// Plan plans the race of a call that may be hedged: when hedges are due, and by which rules attempts race. It comes after
// SetTraits.
func (c *Call) Plan() race.Plan {
	s, policy := c.settings, c.ByPolicy()
	p := race.Plan{
		Rules: race.Rules{
			Delay:            c.Delay,
			MaxHedges:        uint8(min(c.MaxHedges, race.MaxAttempts-1)),
			HedgeFinal:       policy || s.OnlyReads || c.safe, // if a server sent it
			FailureSendsNext: policy,
			Judged:           s.Acceptable != nil,
		},
		Start: c.Start,
		Due:   c.Delay,
		Alarm: &c.method.Alarm,
	}
	if p.Judged && !policy { // a rejected answer makes hedges due that the trigger would not send
		p.MaxHedges = uint8(s.MaxHedges)
	}
	if c.class != nil {
		p.Alarm = &c.class.Alarm
	}
	return p
}

// WouldBeHedged reports whether a dry run keeps the call from being hedged. The door then looks for reasons why it cannot be hedged.
func (c *Call) WouldBeHedged() bool { return c.dry }

// Late reports whether the call has lasted longer than its delay.
func (c *Call) Late() bool { return c.Age() > c.Delay }

// NotReplayable says that no second attempt of the call can be made, so that Hedged and WouldBeHedged are false from now on.
func (c *Call) NotReplayable() {
	if !c.armed && !c.dry {
		return
	}
	c.method.Counters.NotReplayable.Add(1)
	c.method.Counters.Flush()
	if c.dry = false; c.armed {
		c.armed = false
		tellHeldBack(c, 1, stats.NotReplayable)
		reportUnhedged(c)
	}
	c.method.NoteUnhedgeable()
}

// IsSingleRequest reports whether hedge.WithSingleRequest names a method.
func IsSingleRequest(r *registry.Registry, target, method string) bool {
	return r != nil && r.Method(target, method, time.Now()).Settings().SingleRequest
}

// SendsOne notes that the call is a stream of a method of hedge.WithSingleRequest. It is not hedged
// if callers of the method often send a second message.
func (c *Call) SendsOne() {
	if c.method != nil && c.method.Talks.Begins() {
		c.NotReplayable()
	}
}

// SecondRequest counts a stream whose caller sends a second message.
func (c *Call) SecondRequest() {
	c.method.Talks.Second()
	c.method.Counters.Update(func(s *stats.Counts) { s.SecondRequest++ })
}

// PassThrough counts a client-streaming or bidirectional call that is not hedged, and returns the
// context under which to make it. It uses only [OffOption] and [ReportOption].
func PassThrough(r *registry.Registry, ctx context.Context, target, method string, conn feature.Conn, opts ...grpc.CallOption) context.Context {
	o := inContext(ctx).with(opts)
	if o.report != nil {
		o.report(stats.Outcome{Attempts: 1, Reason: stats.NotServerStream})
	}
	if r == nil {
		return ctx
	}
	m := r.Method(target, method, time.Now())
	m.NoteNames(conn, o.static)
	m.Counters.PassedThrough.Add(1)
	m.Counters.Flush()
	c := Call{settings: m.Settings()}
	if o.off || c.settings.Off {
		c.why = stats.SwitchedOff
	} else if c.settings.Pause.Load() != "" {
		c.why = stats.Paused
	}
	return c.UnhedgedContext(ctx)
}
