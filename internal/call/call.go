// Package call tracks one call of a method from beginning to end: when its hedges are due, whether
// each is sent, and which counts and latencies the call adds.
package call

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/control"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/runqueue"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/trigger"
	"github.com/grpchedge/hedge/stats"
)

// Call is one call, from Begin to End. The zero Call is never hedged.
//
// A door (an interceptor, hedgehttp or hedge.Do) calls Begin, Inspect with the request, and Run,
// which makes the attempts and ends the call. The door of a stream calls Inspect when the request
// is sent, the two parts of Run when the caller first waits, and First for the first message if the
// call has not ended before.
type Call struct {
	Context context.Context
	Leg     // of the primary, and of hedges without one of their own
	Start   time.Time
	Delay   time.Duration // after which the first hedge is due
	Wait    *Wait         // of a stream; nil for other calls
	// AskedAt is the age at which the caller began to wait for the race. It is above 0 only for a
	// stream.
	AskedAt time.Duration

	Learns  bool // its latency is known: its method, its group and, unless untaught is set, its learner record it
	OffWire bool // its attempts do not use the streams of its target's connections
	// AnswersLater means that attempts race for headers, not for an answer. If Run returns no error,
	// the answer is to come, and the door must call End or First for it.
	AnswersLater bool
	// Hedged means that due hedges are considered: see Admit. WouldBeHedged means that only a dry
	// run keeps the call from that.
	Hedged, WouldBeHedged bool
	// TracksFailures means that the interceptor must pass on the trailers of failures: the target
	// has a throttle, or a failure makes the next hedge due.
	TracksFailures bool
	// HedgeFinal means that the final status of a hedge ends the race, if a server sent it.
	HedgeFinal bool
	Judged     bool // WithAcceptable is in force

	ended     bool
	untaught  bool // the learner skips its latency: hedge.Off, a busy process, or a connection that was not ready
	group     control.Group
	maxHedges int32 // of the trigger or the policy

	class *registry.Class // of its request; nil: none
	http  *HTTPOption     // nil for a gRPC call

	estimate  *trigger.Estimate                      // gave the delay; nil: the delay was not learned
	held      *holdings                              // nil until the first hedge is due
	elsewhere func(n int) (target string, conn Conn) // see GoElsewhere; nil: no hedge has a leg of its own
	byHeaders *race.State                            // of a race that headers have decided; the first message is to come

	why    stats.Reason        // why the last due hedge was not sent, or why the call cannot be hedged
	report func(stats.Outcome) // of hedge.Report; nil if unset
}

// Enter returns the context for a new call under ctx, without marks of other calls. again means
// that the call is an attempt of the same scheduler, which is installed a second time: the door
// then makes the call as it is.
func Enter(ctx context.Context, r *registry.Registry, method string, cc *grpc.ClientConn,
) (_ context.Context, again bool) {
	within := race.Of(ctx)
	if within != nil && isAttempt(within, r, method, cc) {
		return ctx, true
	}
	return race.Unmarked(ctx, within), false
}

// isAttempt reports whether a call is an attempt of the same scheduler, on the same connection or
// on one to a hedge's destination, and of the same method. within is the call's [race.Of].
func isAttempt(within *race.Context, r *registry.Registry, method string, cc *grpc.ClientConn) bool {
	attempt, away := within.Makes(r, cc, method)
	if !attempt || !r.Made() {
		return false
	}
	if !away && !r.Nested.Swap(true) {
		target, _ := ConnOf(cc)
		s := r.Method(target, method, time.Now()).Settings()
		settings.Emit(s.Traces, settings.Notice{Level: slog.LevelWarn, Message: "hedging installed twice",
			Target: target})
	}
	return true
}

// ConnOf returns the target and the connection of cc. Both are empty for a nil cc, as in a test
// that passes its own invoker.
func ConnOf(cc *grpc.ClientConn) (target string, conn Conn) {
	if cc != nil {
		target, conn = cc.Target(), cc // a nil cc would be a conn that is not nil
	}
	return target, conn
}

// Begin counts a call and returns it. If r was not made by hedge.New, the call is not hedged. A nil
// conn counts as always ready. Begin uses the options of this package, in opts and ctx.
func Begin(r *registry.Registry, ctx context.Context, target, method string, conn Conn, opts ...grpc.CallOption,
) (c Call) {
	o := inContext(ctx).with(opts)
	now := time.Now()
	m := r.Method(target, method, now)
	c.report = o.report
	if m == nil {
		reportOneAttempt(&c)
		return c
	}
	s, paused := m.Begins(conn, o.static)
	m.Counters.Calls.Add(1)
	c.Context, c.Start, c.Learns, c.http = ctx, now, true, o.http
	c.Leg = Leg{Target: target, Conn: conn, method: m, settings: s}
	c.TracksFailures = s.Throttle != nil || s.Failover != 0
	c.HedgeFinal = s.AsGRPC || s.OnlyReads || c.http != nil && c.http.Safe
	c.Judged = s.Acceptable != nil
	selected := o.after || o.selected(s)
	setMode(&c, o, paused, selected)
	if !c.Hedged {
		hide(&c)
	}
	if c.Learns && (!c.Hedged || c.estimate == nil) {
		c.untaught = c.untaught || conn != nil && conn.GetState() != connectivity.Ready
	}
	if !s.Off {
		m.Target.NoteSelected(selected)
	}
	m.Counters.Flush()
	reportOneAttempt(&c)
	return c
}

// setMode decides whether the call may be hedged, and after which delay, or counts why not.
func setMode(c *Call, o options, paused, selected bool) {
	m, s := c.method, c.settings
	switch {
	case o.off, s.Off:
		m.Counters.Off.Add(1)
		c.untaught, c.why = o.off, stats.SwitchedOff
	case paused:
		m.Counters.Paused.Add(1)
		c.why = stats.Paused
	case o.after:
		hedgeAfter(c, o.delay)
	case !s.Described && o.http == nil:
		m.Counters.NoDescriptor.Add(1)
		c.Learns, c.why = false, stats.NoDescriptor
	case !selected:
		m.Counters.NotSelected.Add(1)
		c.Learns, c.why = false, stats.NotSelected
	case s.Fixed:
		hedgeAfter(c, s.Delay)
	case learnedDelay(c):
		hedgeAfter(c, c.Delay)
	case s.WarmupDelay > 0 || s.Latest < race.Longest:
		m.Counters.Warmup.Add(1)
		hedgeAfter(c, min(cmp.Or(s.WarmupDelay, race.Longest), s.Latest))
	default:
		m.Counters.Warmup.Add(1)
		if s.Failover != 0 && !s.DryRun { // only failures send hedges: Plan sets the longest delay for stats.Warmup
			hedgeAfter(c, 0)
			c.maxHedges, c.why = 0, cmp.Or(c.why, stats.Warmup)
			return
		}
		c.why = stats.Warmup
		c.settings.Budgets.Earn(c.Start, 0)
	}
}

// hide lets the child of a policy of package balancer choose the backend if hedging is switched off
// for the call.
func hide(c *Call) {
	switch c.why {
	case stats.SwitchedOff, stats.Paused, stats.NoHedgesConfigured, stats.DryRun, stats.InControlGroup:
		c.Record = place.Hidden
	}
}

// selected reports whether the options of hedge.New select a call of a method with the given
// settings. For HTTP requests see hedgehttp.Transport.
func (o options) selected(s *settings.Settings) bool {
	switch {
	case o.http == nil:
		return s.Selected
	case o.http.Idempotent:
		return s.Selected || !s.Described || o.http.Selected
	}
	return s.Named || o.http.Selected && !s.IdempotentOnly
}

// learnedDelay sets the call's delay by its class or its method, or returns false while these are
// being learned.
func learnedDelay(c *Call) bool {
	l := c.Learner()
	e := l.EstimateFor(c.Start)
	if e == nil {
		return false
	}
	c.estimate, c.Delay = e, min(max(e.Delay, c.settings.MinDelay), c.settings.Latest)
	return true
}

// hedgeAfter adds the call's share to the budget, and lets the call be hedged unless a setting
// forbids it.
func hedgeAfter(c *Call, delay time.Duration) {
	s := c.settings
	c.Delay = min(delay, race.Longest)
	c.settings.Budgets.Earn(c.Start, c.Delay)
	c.maxHedges = int32(s.MaxHedges)
	if c.estimate != nil {
		c.maxHedges = int32(min(c.estimate.Hedges, s.MaxHedges))
	}
	switch {
	case c.maxHedges == 0 || s.BudgetPercent == 0:
		c.why = stats.NoHedgesConfigured
	case s.DryRun:
		c.WouldBeHedged, c.why = true, stats.DryRun
	default:
		if s.Groups != nil {
			c.group = s.Groups.Draw()
		}
		if c.Hedged = c.group != control.Unhedged; !c.Hedged {
			c.method.Counters.Control.Add(1)
			c.why = stats.InControlGroup
		}
	}
}

// reportOneAttempt fills in the outcome of hedge.Report for a call that sends no hedge. If the call
// races, FillOutcome replaces that outcome.
func reportOneAttempt(c *Call) {
	if c.report == nil {
		return
	}
	o := stats.Outcome{Attempts: 1, Reason: c.why}
	if c.Hedged {
		o.Delay = c.Delay
	}
	c.report(o)
}

// Inspects reports whether Inspect calls the function of WithClass: the class is still to be set.
func (c *Call) Inspects() bool {
	return c.Learns && c.settings.Class != nil && c.class == nil && c.group != control.Unhedged
}

// Inspect calls the function of WithClass with the call's request, holding no lock. It must be
// called before the first hedge is due. The race of a stream may begin before the function returns:
// Inspect then discards the class.
func (c *Call) Inspect(request any) {
	if !c.Inspects() {
		return
	}
	class := c.settings.Class(c.Context, c.method.Name, request)
	if w := c.Wait; w != nil {
		w.Lock()
		defer w.Unlock()
		if w.Began {
			return
		}
	}
	if class == "" && !c.method.HasClasses() {
		return
	}
	c.class = c.method.Class(cmp.Or(class, registry.OtherClass))
	if c.estimate != nil && learnedDelay(c) {
		c.maxHedges = int32(min(c.estimate.Hedges, c.settings.MaxHedges))
		reportOneAttempt(c)
	}
}

// Run makes the attempts of the call by its door, in the race r, and ends the call with the attempt
// that decided it. If the call is not hedged, Run makes only the primary, and uses neither r nor
// cancel. ctx and cancel are those of [race.Race.Begin].
func (c *Call) Run(ctx context.Context, cancel context.CancelCauseFunc, r *race.Race, door race.Entrant) race.Result {
	if !c.Hedged {
		return c.runPrimary(door)
	}
	c.BeginRace(ctx, cancel, r, door)
	return r.Decide()
}

// runPrimary makes the only attempt. Like BeginRace, it is apart from Run to keep the stack of a
// waiting caller small.
//
//go:noinline
func (c *Call) runPrimary(door race.Entrant) race.Result {
	end := door.Primary()
	c.EndedUntouched(end)
	return race.Result{Err: end.Err, Untouched: true}
}

// BeginRace is Run of a hedged call up to [race.Race.Decide], by the plan of the call.
//
//go:noinline
func (c *Call) BeginRace(ctx context.Context, cancel context.CancelCauseFunc, r *race.Race, door race.Entrant) {
	if w := c.Wait; w != nil && w.ForRequest {
		w.Lock()
		defer w.Unlock()
	}
	plan := c.Plan()
	if c.AskedAt > 0 {
		plan = plan.StartAt(c.AskedAt, Grace)
	}
	if w := c.Wait; w != nil && w.unsent { // no hedge is due before the request: BeginWithRequest restarts the race
		plan.Due, plan.Alarm = race.Longest, nil
	}
	r.Begin(ctx, cancel, plan, c, door)
}

// Plan returns the plan of the call's race: when hedges are due, and the rules of the race. It must
// be called after Inspect.
func (c *Call) Plan() race.Plan {
	s := c.settings
	p := race.Plan{
		Rules: race.Rules{
			Delay:      c.Delay,
			MaxHedges:  uint8(min(c.maxHedges, race.MaxHedges)),
			CountsAll:  s.AsGRPC,
			HedgeFinal: c.HedgeFinal,
			Judged:     c.Judged,
		},
		Start:  c.Start,
		Due:    c.Delay,
		Before: runqueue.ReadArrived,
		Alarm:  &c.method.Alarm,
	}
	// Some hedges may exceed the trigger's maximum. For the others, early applies that maximum.
	if p.Judged || s.Failover != 0 || s.Latest < race.Longest {
		p.MaxHedges = uint8(s.MaxHedges)
	}
	if c.why == stats.Warmup {
		p.Delay, p.Due = race.Longest, race.Longest
	}
	if c.class != nil {
		p.Alarm = &c.class.Alarm
	}
	return p
}

// Age returns the age of the call; 0 before the call begins.
func (c *Call) Age() time.Duration {
	if w := c.Wait; w != nil && w.ForRequest {
		w.Lock()
		defer w.Unlock()
		if w.unsent {
			return 0
		}
	}
	return time.Since(c.Start)
}

// Teaches reports whether the method learns the latency of the call.
func (c *Call) Teaches() bool { return c.Learns && !c.untaught }

// Named reports whether a pattern or the method's descriptor selects the call, and not
// hedge.WithAllMethods alone.
func (c *Call) Named() bool { return c.settings.Named || c.http != nil && c.http.Selected }

// Learner returns the learner that gives the call's delay: the class's or the method's.
func (c *Call) Learner() *trigger.Learner {
	if c.class != nil {
		return &c.class.Learner
	}
	return &c.method.Learner
}

// Late reports whether the first hedge of the call is due, or would be if the call were hedged.
func (c *Call) Late() bool { return c.Age() > c.Delay }

// NotReplayable records that the call's request cannot be sent again: Hedged and WouldBeHedged are
// false afterwards.
func (c *Call) NotReplayable() { c.unhedgeable(stats.NotReplayable, &c.method.Counters.NotReplayable) }

// UnknownOption is NotReplayable for a call with options that attempts cannot share.
func (c *Call) UnknownOption() { c.unhedgeable(stats.UnknownOption, &c.method.Counters.UnknownOption) }

func (c *Call) unhedgeable(why stats.Reason, count *atomic.Int64) {
	was, dry := c.Hedged, c.WouldBeHedged
	if c.Hedged, c.WouldBeHedged = false, false; !was && !dry {
		return
	}
	count.Add(1)
	c.method.Counters.Flush()
	if was {
		reportHeldBack(c, 1, why)
		reportOneAttempt(c)
	}
	c.method.ReportUnhedgeable()
}

// OffOption is the call option hedge.Off.
type OffOption struct{ grpc.EmptyCallOption }

// AfterOption is the call option hedge.After. Delay is not negative.
type AfterOption struct {
	grpc.EmptyCallOption
	Delay time.Duration
}

// ReportOption is the call option hedge.Report. Fill may be called more than once.
type ReportOption struct {
	grpc.EmptyCallOption
	Fill func(stats.Outcome)
}

// HTTPOption marks the call as an HTTP request.
type HTTPOption struct {
	grpc.EmptyCallOption
	Safe       bool // it only reads
	Idempotent bool // HTTP, or a header of the request, allows it to be sent twice
	Selected   bool // WithMethods or WithReadOnlyMethods has a pattern that matches its path
}

// options are the hedging options of one call.
type options struct {
	off   bool
	after bool
	delay time.Duration

	report func(stats.Outcome) // of hedge.Report; nil if unset
	http   *HTTPOption         // nil for a gRPC call or a call of hedge.Do
	static bool                // of grpc.StaticMethod: the process has few method names
}

// with returns o with this library's options of opts applied. The last one wins, as with gRPC's
// options.
func (o options) with(opts []grpc.CallOption) options {
	for _, opt := range opts {
		switch opt := opt.(type) {
		case OffOption:
			o.off, o.after = true, false
		case AfterOption:
			o.off, o.after, o.delay = false, true, opt.Delay
		case ReportOption:
			o.report = opt.Fill
		case *HTTPOption:
			o.http = opt
		case grpc.StaticMethodCallOption:
			o.static = true
		}
	}
	return o
}

// NewContext returns a context that applies opts to every call that begins under it: see
// hedge.NewContext.
func NewContext(ctx context.Context, opts []grpc.CallOption) context.Context {
	o := inContext(ctx).with(opts)
	o.report = nil // several calls may share a context
	contextsUsed.Store(true)
	return context.WithValue(ctx, optionsKey{}, o)
}

type optionsKey struct{}

// contextsUsed is set by NewContext. Until then calls do not search their contexts for options.
var contextsUsed atomic.Bool

func inContext(ctx context.Context) options {
	if !contextsUsed.Load() {
		return options{}
	}
	o, _ := ctx.Value(optionsKey{}).(options)
	return o
}
