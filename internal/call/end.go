package call

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/control"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/trigger"
	"github.com/grpchedge/hedge/stats"
)

// Judge implements [race.Policy]. It decides the meaning of an end, once: the race, the throttle,
// the guard, the learners and the statistics read the event.
func (c *Call) Judge(n int, end race.End, open bool) race.Event {
	e := c.failure(c.LegOf(n), end.Err, end.Trailer)
	e.Kind, e.Attempt, e.Open = race.Ended, uint8(n), end.Open && end.Err != nil
	mayEnd := n == 0 || c.HedgeFinal
	if n > 0 && open && mayEnd && e.End == race.Final && !end.Served {
		e.End = race.NonFatal
	}
	asks := open && c.Judged && !c.AnswersLater && (e.End == race.OK || e.End == race.Final && mayEnd)
	if !asks || c.accepts(end) {
		return e
	}
	if end.Rejected != nil {
		end.Rejected()
	}
	if e.End = race.RejectedStatus; end.Err == nil {
		e.End, e.Open = race.RejectedReply, end.Open
	}
	return e
}

// accepts asks the function of WithAcceptable, unless the attempt has failed after the caller's
// context ended.
func (c *Call) accepts(end race.End) bool {
	reply, err := end.Reply, end.Err
	switch {
	case err != nil && c.Context.Err() != nil:
		return true
	case err == nil && reply == nil && !c.OffWire:
		err = io.EOF // of a stream without a message
	case err != nil && c.http == nil:
		reply = nil
	}
	return c.settings.Acceptable(c.Context, c.method.Name, reply, err)
}

// failure is verdict. It also reports a failure to the limit of resets at the attempt's
// destination: see [race.Event].Cut.
func (c *Call) failure(leg *Leg, err error, trailer metadata.MD) race.Event {
	e := c.verdict(leg, err, trailer)
	if !c.OffWire && e.End == race.NonFatal && leg.method.Target.Resets.NoteFailure(err, time.Now()) {
		e.Failover, e.Cut = true, true
	}
	return e
}

// verdict returns the meaning of the status of an attempt on a leg. Package hedgehttp translates
// HTTP statuses before.
//
//	status                              End       besides
//	OK                                  OK        Answers
//	one of hedge.WithFailover           NonFatal  Failover
//	a final one of another destination  NonFatal  Answers, if it may be another server's answer
//	a final one                         Final     Answers
//	any other                           NonFatal  Exhausted, by a rate limit; Failover and Cut, by a cut
func (c *Call) verdict(leg *Leg, err error, trailer metadata.MD) race.Event {
	if err == nil {
		return race.Event{Answers: true}
	}
	e := race.Event{End: race.NonFatal, Answers: rpc.Answers.HasStatus(err), Exhausted: rpc.Exhausted(err)}
	switch {
	case c.failsOver(err):
		e.Failover = true
	case c.settings.Final.HasStatus(err) && !(leg.Target != c.Target && ofDestination.HasStatus(err)):
		e.End = race.Final
	}
	switch wait, pushed := rpc.Pushback(trailer); {
	case !pushed:
	case wait < 0:
		e.Pushback = race.PushbackNever
	default:
		e.Pushback, e.Wait = race.PushbackAfter, wait
	}
	return e
}

// ofDestination are the statuses of a server that lacks the method, or rejects credentials that
// another destination may accept.
var ofDestination = rpc.CodesOf(codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied)

var unavailable = rpc.CodesOf(codes.Unavailable)

// failsOver reports whether the failure of an attempt makes the next hedge due. A gateway's timeout
// counts as an unavailable server, and so does a network error of a function of hedge.Do.
func (c *Call) failsOver(err error) bool {
	switch f := c.settings.Failover; {
	case f.HasStatus(err):
		return true
	case f&unavailable == 0:
		return false
	}
	var broken net.Error
	return c.http != nil && status.Code(err) == codes.DeadlineExceeded || c.OffWire && errors.As(err, &broken)
}

// CallsForHedge reports whether the failure of a primary makes the next hedge due.
func (c *Call) CallsForHedge(err error) bool { return c.failure(&c.Leg, err, nil).Failover }

// Patience returns how much longer a primary that has failed waits for the n hedges that were sent:
// twice the longest latency known at their destinations, or the age of the call if that is longer.
// While too few latencies are known, it is at least a minute.
func (c *Call) Patience(n int) time.Duration {
	now, patience := time.Now(), c.Age()
	longest, _ := c.method.Learner.Longest(now)
	for h := 1; h <= n; h++ {
		there, enough := c.LegOf(h).method.Learner.Longest(now)
		if longest = max(longest, there); !enough {
			patience = max(patience, time.Minute)
		}
	}
	return max(patience, 2*longest)
}

// Completion describes how a call ended for its caller. A stream ends with its first message, or
// without one.
type Completion struct {
	Race    *race.State // ended with the call; nil for none: see also Call.byHeaders
	Err     error
	Age     time.Duration // of the call, when it ended; 0: now
	Trailer metadata.MD   // of a call that failed without a race; nil if unknown

	// AskedAt is the age at which the caller of a stream began to wait. The latency of an attempt
	// that ended before twice that age is unknown.
	AskedAt time.Duration
	early   bool // headers decided the stream well before its first message: see stats.Counts.EarlyHeaders
}

// Grace is for an answer that may have arrived before its caller asked for it: a hedge that was due
// before waits for it, and a caller that asks within Grace after the headers counts as waiting.
const Grace = time.Millisecond

// Ended implements [race.Policy]. The end of the race ends the call, unless its answer comes later.
func (c *Call) Ended(r *race.State) {
	if c.AnswersLater && r.Err == nil && !r.Panicked {
		countRace(c, r, true)
		c.byHeaders = r
		return
	}
	c.End(Completion{Race: r, Err: r.Err, Age: r.DeliveredAt, AskedAt: c.AskedAt})
}

// EndedUntouched implements [race.Policy]. It ends the call, as Ended does, with the only attempt.
func (c *Call) EndedUntouched(end race.End) {
	if !c.AnswersLater || end.Err != nil {
		c.End(Completion{Err: end.Err, Trailer: end.Trailer, AskedAt: c.AskedAt})
	}
}

// End counts the end of the call, and learns from it. Later calls are no-ops.
func (c *Call) End(e Completion) {
	if c.method == nil || c.ended {
		return
	}
	if c.ended = true; c.Wait != nil {
		c.Wait.complete(c, &e)
	}
	d := endedCall{Completion: e, call: c, outcome: race.Event{Answers: true}}
	if e.Err != nil {
		d.outcome = c.verdict(&c.Leg, e.Err, e.Trailer)
	}
	if e.Race != nil {
		countRace(c, e.Race, d.outcome.Answers)
	}
	if e.early {
		c.WouldBeHedged = false // countUnraced: the headers would have decided the call before its hedge
		c.method.Counters.Update(func(s *stats.Counts) { s.EarlyHeaders++ })
		c.method.ReportUnhedgeable()
	}
	d.describe()
	if d.Race == nil {
		d.countUnraced()
	}
	if e.Err == nil {
		d.noteSuccess()
	}
	if c.Record != nil && c.Record != place.Hidden {
		d.notePrimary()
	}
	d.noteOutcome(d.learn())
	if c.group != control.NoGroup && c.Learns && d.known && (d.answered || d.gone) {
		c.settings.Groups.Ended(c.group, c.Start.Add(d.Age), d.Age, d.answered)
	}
}

// endedCall is a call that has ended.
type endedCall struct {
	Completion
	call     *Call
	outcome  race.Event // the meaning of Err
	headers  bool       // response headers decided Race; Err and Age describe the first message
	answered bool       // Err is of a server that has looked at the request, or nil
	gone     bool       // the caller's context had ended
	known    bool       // the latency is known: the caller waited from the start, and no attempt panicked
	primary  primary
}

// primary is the end of the primary of a call, at an age of the call.
type primary struct {
	known     bool // the primary has ended, and its end is known
	cutShort  bool // a hedge won at age, before the primary answered; a stream answers with its first message
	err       error
	answers   bool // err is of a server that has looked at the request, or nil
	age       time.Duration
	gone      bool // the caller's context had ended by then
	askedLate bool // the primary of a stream may have ended long before the caller asked
}

func (p *primary) answered() bool {
	return p.known && (p.err == nil || !p.gone && !p.askedLate && p.answers)
}

// describe fills in the fields after outcome.
func (d *endedCall) describe() {
	c := d.call
	if d.answered = d.outcome.Answers; d.Age == 0 {
		d.Age = time.Since(c.Start)
	}
	d.gone = d.Err != nil && c.Context != nil && c.Context.Err() != nil
	if d.headers = c.byHeaders != nil; d.headers {
		d.Race = c.byHeaders
	} else if d.Race != nil {
		d.gone = d.Race.CallerGone
	}
	d.known = d.gone || d.Age >= 2*d.AskedAt
	switch {
	case d.Race == nil:
		p := &d.primary
		p.known, p.err, p.answers, p.age, p.gone, p.askedLate = true, d.Err, d.answered, d.Age, d.gone, !d.known
	case d.Race.Panicked: // latencies are unknown
		d.known = false
	default:
		d.primary = d.primaryOfRace()
		d.gone = d.gone || d.primary.gone
	}
}

// notePrimary records the end of the primary at its backend, unless the primary was cut short or
// its caller gave up early: the backend may still answer.
func (d *endedCall) notePrimary() {
	if answered := d.primary.answered(); answered || d.primary.known && !d.gone ||
		d.gone && d.call.Context.Err() == context.DeadlineExceeded {
		d.call.Record.Ended(d.primary.age, answered)
	}
}

// noteOutcome records the caller's outcome at the method: a failure, or an answer and its latency.
// If the primary answered the call and learned is set, the learner has that latency already.
func (d *endedCall) noteOutcome(learned bool) {
	c := d.call
	switch {
	case !d.answered:
		if !d.gone || c.Context.Err() != context.Canceled {
			c.method.Failed(c.Start.Add(d.Age), d.Race != nil && d.Race.Hedges > 0, c.group == control.Unhedged)
		}
	case c.Learns && d.known && !(learned && (d.Race == nil || d.Race.Winner == 0)):
		c.method.Answered(c.Start.Add(d.Age), d.Age)
	}
}

// noteSuccess counts a success for the throttle of the winner's target: throttle.ended counts
// failures.
func (d *endedCall) noteSuccess() {
	winner := 0
	if r := d.Race; r != nil && r.Panicked {
		return
	} else if r != nil {
		winner = r.Winner
	}
	if t := d.call.LegOf(winner).settings.Throttle; t != nil {
		t.Succeeded()
	}
}

// countUnraced counts a failure without a race, and in a dry run the hedge that the call would have
// had.
func (d *endedCall) countUnraced() {
	c := d.call
	if d.Err != nil {
		if !d.gone && c.TracksFailures {
			countFailure(c, &c.Leg, 0, c.failure(&c.Leg, d.Err, d.Trailer))
		}
		noteEnd(attemptEnd{Event: d.outcome, call: c, leg: &c.Leg, over: true})
	}
	if !c.WouldBeHedged || !d.known || d.Age <= c.Delay {
		return
	}
	if why := prevented(c); why != stats.NoReason {
		c.method.Counters.HeldBack(why)
		c.method.ReportUnhedgeable()
		return
	}
	c.method.Counters.Update(func(s *stats.Counts) { // the first hedge only: it might have answered before the second
		switch {
		case d.Age <= min(draw(c, c.Delay), c.settings.Latest):
			s.NotDrawn++
		case !c.settings.Budgets.Pretend(c.Start.Add(c.Delay)):
			s.BudgetExhausted++
		default:
			s.DryRun++
		}
	})
}

// prevented returns why a late call of a dry run could not have been hedged, or NoReason.
func prevented(c *Call) stats.Reason {
	switch {
	case race.MadeForHedge(c.Context):
		return stats.OfHedge
	case deadlineNear(c, &c.Leg, c.Start.Add(c.Delay)):
		return stats.DeadlineNear
	}
	return stats.NoReason
}

func (d *endedCall) primaryOfRace() primary {
	r, a := d.Race, &d.Race.Attempts[0]
	if at, cut := unanswered(r, 0); cut {
		return primary{cutShort: true, age: at}
	}
	p := primary{known: a.Kind == race.Ended, err: a.Err, answers: a.Answers, age: a.EndedAt}
	p.gone = goneBefore(d.call, r, 0)
	switch {
	case d.headers && r.Winner == 0:
		p.err, p.answers, p.age, p.gone = d.Err, d.answered, d.Age, d.gone
	case d.headers && a.Err == nil: // its first message was still to come
		return primary{cutShort: true, age: r.DecidedAt}
	}
	p.askedLate = !p.gone && p.age < 2*d.AskedAt
	return p
}

// goneBefore reports whether the caller's context had ended when attempt n ended. The state of a
// race that Commit has decided lacks a later end of the context, so goneBefore looks at the
// context.
func goneBefore(c *Call, r *race.State, n int) bool {
	a := &r.Attempts[n]
	if r.Committed && n == 0 {
		return a.Err != nil && c.Context.Err() != nil
	}
	return r.CallerGone && r.GoneAt <= a.EndedAt
}

// countRace counts and reports what happened in a race that has ended, and which attempt won.
// answered reports whether its outcome is an answer.
func countRace(c *Call, r *race.State, answered bool) {
	hedged := r.Hedges > r.TurnedAway && !r.Panicked
	answered = answered && hedged
	noteEnds(c, r, answered && r.Winner > 0 && r.Attempts[r.Winner].End < race.RejectedStatus)
	if r.NotReplayable {
		c.NotReplayable()
	}
	if answered || r.Rejected > 0 || r.LoserPanics > 0 {
		c.method.Counters.Update(func(s *stats.Counts) {
			s.LoserPanics += int64(r.LoserPanics)
			s.Rejected += int64(r.Rejected)
			switch {
			case answered && r.Winner > 0:
				s.HedgeWins++
			case answered:
				s.PrimaryWins++
			}
		})
	}
	traceRace(c, r)
}

// FillOutcome fills in the outcome of hedge.Report for a race that is decided, once.
func (c *Call) FillOutcome(r *race.State) {
	if c.report != nil {
		c.report(stats.Outcome{
			Attempts: r.Hedges + 1, Winner: r.Winner, Delay: c.Delay, Reason: c.why,
			Rejected: r.Attempts[r.Winner].End.IsRejected(),
		})
		c.report = nil
	}
}

func traceRace(c *Call, r *race.State) {
	c.FillOutcome(r)
	traces := c.settings.Traces
	if r.Hedges == 0 || len(traces) == 0 {
		return
	}
	for n := range r.Hedges + 1 {
		if a := &r.Attempts[n]; a.CutShort && !r.CallerGone {
			settings.Emit(traces, stats.AttemptLost{Call: traced(c), Attempt: n, Ran: r.DecidedAt - a.SentAt})
		}
	}
	settings.Emit(traces, stats.CallDecided{
		Call: traced(c), Attempts: r.Hedges + 1, Winner: r.Winner, Delay: c.Delay, Age: r.DecidedAt, Err: r.Err,
	})
}

// learn teaches the method and the class the latencies of the call's attempts. It reports whether
// the primary answered and its latency was taught.
func (d *endedCall) learn() (answered bool) {
	c := d.call
	if !c.Learns || c.untaught {
		return false
	}
	if r := d.Race; r != nil && r.Hedges > r.TurnedAway {
		if r.Panicked || d.AskedAt > c.Delay { // a stream that was late before its caller waited, or was open
			return false
		}
		d.learnHedges()
	}
	d.learnUndrawn()
	p := &d.primary
	cut := p.cutShort || p.known && p.gone && p.err != nil
	answered = !cut && p.known && !p.askedLate && p.answers
	if at := c.Start.Add(p.age); cut || answered {
		c.Teach(0, func(l, _ *trigger.Learner) { l.PrimaryEnded(at, p.age, !cut) })
	}
	return answered
}

// learnUndrawn learns the latency of a call that was not drawn or, as a lower bound, the age of its
// first hedge.
func (d *endedCall) learnUndrawn() {
	c, r := d.call, d.Race
	if c.held == nil || c.held.undrawn == 0 || r == nil || d.headers {
		return
	}
	to, answered := r.DeliveredAt, d.answered
	if r.Hedges > 0 {
		to, answered = r.Attempts[1].SentAt, false
	}
	c.Teach(0, func(l, _ *trigger.Learner) {
		l.UndrawnCall(time.Now(), c.estimate, c.held.drawAt, c.held.undrawn, to, answered)
	})
}

// learnHedges learns the latency of a hedged call and of its hedges, cut short or not, if its
// hedges were due because it was slow. A race with a failover teaches nothing about hedges.
func (d *endedCall) learnHedges() {
	c, r := d.call, d.Race
	if r.Rejected > 0 || r.Failovers > 0 {
		return
	}
	shows := d.answered || !r.GaveUp // the race shows whether hedges of slow calls pay
	if c.estimate != nil && !d.headers && shows {
		first := r.Attempts[firstNotTurnedAway(r)].SentAt
		c.Teach(0, func(l, _ *trigger.Learner) { l.HedgedCall(first, r.DeliveredAt-first, int(c.maxHedges)) })
	}
	for n := 1; n <= r.Hedges; n++ {
		latency, answered, known := latencyOf(r, n)
		answers := r.Attempts[n].Answers
		if d.headers { // they decided before the first message, which ends the latency
			latency, answered = r.DecidedAt-r.Attempts[n].SentAt, false
			if known = n == r.Winner || r.Attempts[n].CutShort; n == r.Winner && d.known {
				latency, answered, answers = d.Age-r.Attempts[n].SentAt, true, d.answered
			}
		}
		if known && (!answered || answers) {
			c.Teach(n, func(l, to *trigger.Learner) { l.HedgeEnded(to, time.Now(), latency, answered) })
		}
	}
}

// firstNotTurnedAway returns the first hedge that was not turned away; 0 if there is none.
func firstNotTurnedAway(r *race.State) int {
	for n := 1; n <= r.Hedges; n++ {
		if !r.Attempts[n].TurnedAway() {
			return n
		}
	}
	return 0
}

// unanswered returns the time that attempt n had been in flight when another attempt decided the
// race: a lower bound of its latency. It returns false if attempt n ended before, or succeeded
// later.
func unanswered(r *race.State, n int) (time.Duration, bool) {
	a := &r.Attempts[n]
	answered := a.Kind == race.Ended && (a.End == race.OK || a.End == race.RejectedReply)
	return r.DecidedAt - a.SentAt, a.CutShort && !answered
}

// latencyOf returns the latency of hedge n, or, if the hedge was cut short or ended with the
// caller's context, a lower bound: answered is then false. known is false for a hedge that failed
// earlier.
func latencyOf(r *race.State, n int) (latency time.Duration, answered, known bool) {
	if bound, cut := unanswered(r, n); cut {
		return bound, false, true
	}
	a := &r.Attempts[n]
	if r.CallerGone && a.Err != nil && r.GoneAt <= a.EndedAt {
		return a.EndedAt - a.SentAt, false, true
	}
	return a.EndedAt - a.SentAt, true, n == r.Winner && a.End != race.NonFatal || a.CutShort
}

// LegOf returns the leg of attempt n, which was admitted if it is a hedge. The primary's is not read
// from c.held, which Admit may be making as the primary ends.
func (c *Call) LegOf(n int) *Leg {
	if n == 0 {
		return &c.Leg
	}
	return c.held.of[n].to
}

// Teach calls lesson with each learner that learns from the call, the method's and the class's, and
// with the same one on the leg of attempt n.
func (c *Call) Teach(n int, lesson func(l, to *trigger.Learner)) {
	to := c.LegOf(n).method
	lesson(&c.method.Learner, &to.Learner)
	if c.class == nil {
		return
	}
	class := c.class
	if to != c.method {
		class = to.Class(c.class.Name)
	}
	lesson(&c.class.Learner, &class.Learner)
}

// LoserPanicked counts an attempt that panicked after the call was decided. It may be called at any
// time, from any goroutine.
func (c *Call) LoserPanicked() {
	if c.method != nil {
		c.method.Counters.Update(func(s *stats.Counts) { s.LoserPanics++ })
	}
}
