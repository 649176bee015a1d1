package race

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/rpc"
)

// State is a race as a value, and its record. Step takes events, returns actions, and records both.
// It has no goroutine, lock, timer or clock. == compares states.
//
//	state                                 next
//	the primary is in flight,             the primary ends, and wins or fails; a hedge is sent;
//	no hedge was sent                     Committed makes the primary win
//	the primary is in flight,             the same; a hedge's OK or panic decides,
//	a hedge was sent                      with HedgeFinal its Final status too
//	the primary ended without deciding,   a hedge decides as above; or the race is concluded, because
//	a hedge is in flight or called for    the last hedge ended or was not sent, or the caller gave up
//	an attempt has won, or all failed     the losers end; the outcome is delivered, once
//
// A race is concluded if no event can decide it: the primary has ended, no hedge is in flight, and
// no hedge is called for by an end (see [Rules] and [Event].Failover). It is also concluded if the
// caller gives up after a rejected answer. The outcome is then that answer, otherwise a failure.
//
// The state is final once the outcome is delivered, and [Policy.Ended] takes it then: all counts
// and latencies are derived from it. A loser that is in flight at that time has no end in it. If
// that loser panics later, [Policy.LoserPanicked] is called.
//
// All times are ages of the call: durations since its start.
type State struct {
	rules Rules

	// Attempts has the primary at 0, and hedge n at n. At Hedges + 1 there may be a hedge that
	// panicked unsent. The rest is zero.
	Attempts [MaxAttempts]record
	Hedges   int // sent
	// Winner is the attempt that decided the race. Before the decision, it is the attempt with the
	// best rejected answer, or else the primary: the winner if no other attempt decides.
	Winner int
	// Due is the age at which the next hedge is due; while a hedge is considered, that hedge. In virtual
	// time Due is then the age at which Admit is called.
	Due        time.Duration
	Cause      Cause // of the hedge that was considered last and is not sent yet
	CallerGone bool  // the caller's context ended before the race was decided

	turns     uint8 // hedges that count against MaxHedges: sent, and neither turned away nor cut
	asked     bool  // the next hedge is being considered: see Actions.Ask
	noMore    bool  // the call gets no further hedge
	calledFor bool  // an end made the next hedge due, and not the delay
	waits     bool  // a rejected answer or a failover came: since then the race waits for hedges that are called for
	cut       bool  // the connection of an attempt was cut
	stale     bool  // a rejected answer or a failover came after the last Ask
	failover  bool  // the next hedge is due because an attempt failed since the last Ask
	decided   bool
	delivered bool
	armed     bool
	armedAt   time.Duration // when the timer fires, if armed

	// Step does not read the rest.

	// DecidedAt is the time of the decision, and DeliveredAt the time at which the caller gets the
	// outcome. Between them the primary returns, or a hedge is prepared.
	DecidedAt, DeliveredAt time.Duration

	GoneAt        time.Duration // the time of CallerGone
	GaveUp        bool          // CallerGone, and not by the deadline
	Committed     bool          // Race.Commit decided the race
	NotReplayable bool          // a hedge could not be prepared

	// The rest is known once the outcome is delivered.

	Err         error // of the outcome; nil for a success or a panic
	Panicked    bool  // the outcome is a panic
	TurnedAway  int   // hedges that their servers turned away before the decision
	Failovers   int   // hedges that were due because another attempt had failed
	Rejected    int   // attempts that ended with a rejected answer
	LoserPanics int   // losers that panicked between the decision and the delivery
}

// NewState returns the state of a race that is about to send its primary, and the actions that
// start it.
func NewState(p Plan) (State, Actions) {
	s, a := State{rules: p.Rules, Due: p.Due}, Actions{}
	s.rules.MaxHedges, s.rules.Delay = min(p.MaxHedges, MaxHedges), min(p.Delay, Longest)
	s.Attempts[0].SentAt = p.From
	s.setTimer(&a)
	return s, a
}

// Step takes an event that happened at the age now of the call, and returns the actions for it.
// Actions must be done in the order of the steps. An event that is out of place, for example a
// second end of the same attempt, changes nothing, and so does any event after the delivery. Step
// does not allocate.
func (s *State) Step(e Event, now time.Duration) Actions {
	var a Actions
	if s.delivered {
		return a
	}
	switch e.Kind {
	case Due:
		s.fired(now, &a)
	case Admitted, HeldBack, Refused, NotReplayable:
		if s.asked {
			s.admission(e, now, &a)
		}
	case Ended:
		switch n := int(e.Attempt); {
		case s.inFlight().Has(n):
			s.ended(e, now, &a)
		case s.asked && n == s.Hedges+1 && e.End == Panicked:
			s.asked = false
			s.drop(e, &a)
			s.ended(e, now, &a)
		}
	case Committed:
		if !s.decided && s.inFlight().Has(0) {
			s.Committed = true
			s.decide(0, now, &a)
		}
	case CallerGone:
		if !s.decided && !s.CallerGone {
			s.CallerGone, s.GaveUp, s.GoneAt = true, e.Err != context.DeadlineExceeded, now
		}
	}
	if s.concluded() {
		s.decide(s.Winner, now, &a)
	}
	s.setTimer(&a)
	s.deliver(now, &a)
	return a
}

// fired handles Due. If the timer fired before the hedge is due, setTimer arms it again.
func (s *State) fired(now time.Duration, a *Actions) {
	s.armed = false
	if s.waitsForDue() && now >= s.Due {
		s.Cause = s.cause()
		s.calledFor, s.stale, s.failover = false, false, false
		s.asked = true
		a.Ask, a.Turn, a.Cause = uint8(s.Hedges+1), s.turns+1, s.Cause
	}
}

// cause returns the cause of the hedge that is due. A hedge that was held back keeps a failure as
// its cause.
func (s *State) cause() Cause {
	switch {
	case s.cut && s.AllFailed():
		return Cut
	case s.failover || s.Cause >= Failed:
		return Failed
	case s.rejected() != OK:
		return Rejected
	}
	return Slow
}

// admission handles the answer to Ask, and sends the hedge if it may be sent.
func (s *State) admission(e Event, now time.Duration, a *Actions) {
	s.asked = false
	if e.Kind == HeldBack && s.stale {
		s.calledFor, s.Due = true, now // ask again: the answer did not take the newest end into account
		return
	}
	switch e.Kind {
	case Admitted:
		if !s.over() {
			s.send(now, a)
			return
		}
	case HeldBack:
		s.calledFor, s.Due = e.Waits, e.Until // by default, do not wait for a hedge that may never be sent
	case Refused:
		s.noMore = true
	case NotReplayable:
		s.noMore, s.NotReplayable = true, true
	}
	s.drop(e, a)
}

func (s *State) drop(e Event, a *Actions) {
	if e.Paid {
		a.Drop = uint8(s.Hedges + 1)
	}
}

// send sends the hedge that was considered. The next hedge is due one delay later, unless an end
// has called for it.
func (s *State) send(now time.Duration, a *Actions) {
	s.Hedges++
	s.turns++
	s.Attempts[s.Hedges] = record{SentAt: now, Cause: s.Cause}
	a.Start, a.Cause = uint8(s.Hedges), s.Cause
	s.Cause = Slow
	if !s.calledFor {
		s.Due = now + s.rules.Delay
	}
}

// ended handles the end of an attempt, and records it.
func (s *State) ended(e Event, now time.Duration, a *Actions) {
	n := int(e.Attempt)
	r := &s.Attempts[n]
	if r.Event, r.EndedAt = e, now; s.decided {
		r.Pushback = NoPushback
		return
	}
	a.Kept = e.Open
	switch {
	case e.End == OK, e.End == Panicked:
		s.decide(n, now, a)
	case e.End == RejectedReply:
		s.failed(e, now)
	case n == 0 && (s.CallerGone || e.End == Final && s.rejected() != RejectedReply):
		s.decide(0, now, a)
	case s.CallerGone:
		// The hedge ended with the caller's context. The primary returns soon, and decides the
		// race.
	case e.End == Final && s.rules.HedgeFinal && s.rejected() != RejectedReply:
		s.decide(n, now, a)
	default:
		s.failed(e, now)
	}
}

// failed handles an attempt that ended without deciding the race.
func (s *State) failed(e Event, now time.Duration) {
	away := e.TurnedAway() && !s.rules.CountsAll
	if away || e.Cut && e.Attempt > 0 && !s.rules.CountsAll {
		s.turns--
	}
	if e.End.IsRejected() && e.End > s.rejected() {
		s.Winner = int(e.Attempt)
	}
	calls := e.End.IsRejected() || e.Failover
	s.waits, s.stale, s.cut = s.waits || calls, s.stale || calls, s.cut || e.Cut
	if (calls || away) && s.room() {
		s.calledFor, s.failover, s.Due = true, s.failover || e.Failover, now
	}
}

// rejected returns the better kind of rejected answer; OK for none.
func (s *State) rejected() EndKind {
	if best := s.Attempts[s.Winner].End; best.IsRejected() {
		return best
	}
	return OK
}

// concluded reports whether no event can decide the race.
func (s *State) concluded() bool {
	switch {
	case s.decided:
		return false
	case s.CallerGone:
		return !s.inFlight().Has(0) || s.rejected() != OK
	}
	return s.inFlight() == 0 && !s.hedgeToCome()
}

// decide makes attempt n win. The losers are the attempts in flight and the attempts that keep
// their contexts.
func (s *State) decide(n int, now time.Duration, a *Actions) {
	s.decided, s.Winner, s.DecidedAt = true, n, now
	a.Decided, a.Winner = true, uint8(n)
	for i := range s.Hedges + 1 {
		if r := &s.Attempts[i]; i != n {
			if r.CutShort = r.Kind != Ended; r.CutShort || r.Open {
				a.Cancel |= 1 << i
			}
		}
	}
}

// deliver sets Deliver once the race is decided and no attempt uses the caller's memory.
func (s *State) deliver(now time.Duration, a *Actions) {
	if !s.decided || s.asked || s.inFlight()&(1|1<<s.Winner) != 0 { // the primary or the winner
		return
	}
	winner := &s.Attempts[s.Winner]
	s.delivered, s.DeliveredAt, s.Err, s.Panicked = true, now, winner.Err, winner.End == Panicked
	a.Deliver, a.Panic, a.Winner = true, s.Panicked, uint8(s.Winner)
	for n := range s.Attempts {
		r := &s.Attempts[n]
		switch {
		case r.TurnedAway():
			s.TurnedAway++
		case r.End.IsRejected():
			s.Rejected++
		case r.End == Panicked && r != winner:
			s.LoserPanics++
		}
		if r.Cause >= Failed {
			s.Failovers++
		}
	}
}

// setTimer arms the timer for the next hedge, or stops it if none is to come.
func (s *State) setTimer(a *Actions) {
	switch wanted := s.waitsForDue(); {
	case wanted && (!s.armed || s.armedAt != s.Due):
		s.armed, s.armedAt = true, s.Due
		a.Arm, a.At = true, s.Due
	case !wanted && s.armed:
		s.armed, s.armedAt = false, 0
		a.Disarm = true
	}
}

// over reports whether the race sends no further hedge.
func (s *State) over() bool { return s.decided || s.CallerGone || s.noMore }

// waitsForDue reports whether the race waits until its next hedge is due.
func (s *State) waitsForDue() bool {
	return !s.over() && !s.asked && s.room()
}

// room reports whether a further hedge may be sent, besides the one that is being considered.
func (s *State) room() bool {
	considered := 0
	if s.asked {
		considered = 1
	}
	return int(s.turns)+considered < int(s.rules.MaxHedges) && s.Hedges+considered < MaxHedges
}

// hedgeToCome reports whether the race waits for an unsent hedge that an end called for.
func (s *State) hedgeToCome() bool {
	return s.waits && !s.over() && (s.asked || s.calledFor)
}

// inFlight returns the attempts that have been sent and have not ended.
func (s *State) inFlight() (in Attempts) {
	for n := range s.Hedges + 1 {
		if s.Attempts[n].Kind != Ended {
			in |= 1 << n
		}
	}
	return in
}

// AllFailed reports whether all attempts have failed, so that the call fails unless another one is
// sent.
func (s *State) AllFailed() bool {
	for n := range s.Hedges + 1 {
		if r := &s.Attempts[n]; r.Kind != Ended || r.End != NonFatal {
			return false
		}
	}
	return true
}

// Event is one thing that happened in a race. A field is zero unless its comment names the Kind.
type Event struct {
	Kind     EventKind
	Attempt  uint8    // Ended: which attempt, 0 being the primary
	End      EndKind  // Ended: how
	Err      error    // Ended: a status other than OK; CallerGone: the error of the caller's context
	Open     bool     // Ended, not with OK: the attempt needs its context until the race is decided
	Pushback Pushback // Ended with Final, NonFatal or RejectedStatus: the server's pushback
	Failover bool     // Ended with NonFatal: the next hedge is due at once, as after a rejected answer
	Cut      bool     // Ended with Failover: the connection was cut, perhaps because of resets

	Answers   bool // Ended: a server has looked at the request, so the latency is known
	Exhausted bool // Ended with NonFatal or Final: hedges may have used up a rate limit

	Wait  time.Duration // Ended with PushbackAfter: the server's wait from now; at least 0
	Paid  bool          // Admitted, NotReplayable, Ended with Panicked: the considered hedge is paid for
	Until time.Duration // HeldBack: the age of the call at which admission may be asked again
	Waits bool          // HeldBack: the race waits until then, even if no attempt is in flight
}

// TurnedAway reports whether the event is the end of a hedge that its server turned away: the hedge
// failed, and the server asks for the next attempt at once.
func (e Event) TurnedAway() bool {
	return e.Attempt > 0 && e.End == NonFatal && e.Pushback == PushbackAfter && e.Wait == 0
}

type EventKind uint8

const (
	// Due: the timer fired. It may have been stopped or armed again since.
	Due EventKind = iota

	// Answers to Actions.Ask:

	Admitted      // the hedge is paid for and prepared: it does not read the caller's memory
	HeldBack      // not yet; ask again at Event.Until
	Refused       // this call gets no more hedges
	NotReplayable // the request cannot be sent twice; the call gets no more hedges

	// Ended: an attempt has an outcome; the primary has returned to the caller's goroutine. A hedge
	// that is considered can end with Panicked.
	Ended
	Committed  // see Race.Commit: the primary must win, for example because the caller of a stream has its headers
	CallerGone // the caller's context has ended
)

// EndKind is the way in which an attempt ended. The last two require Rules.Judged.
type EndKind uint8

const (
	OK             EndKind = iota // an answer
	Final                         // a status by which the server answers the request
	NonFatal                      // any other status
	Panicked                      // a panic or a runtime.Goexit
	RejectedStatus                // a Final status that would end the race, but WithAcceptable does not accept it
	RejectedReply                 // a success that is not accepted; as an outcome better than RejectedStatus
)

// IsRejected reports whether the attempt ended with a rejected answer.
func (k EndKind) IsRejected() bool { return k >= RejectedStatus }

// Pushback is the server's instruction about further attempts, in a failed attempt's trailer.
type Pushback uint8

const (
	NoPushback    Pushback = iota // none
	PushbackAfter                 // no attempt before Event.Wait has passed
	PushbackNever                 // no further attempt
)

// Cause is the reason for which a hedge is due. From Failed on, the hedge is a failover.
type Cause uint8

const (
	Slow     Cause = iota // the call is slow
	Rejected              // an attempt of the race ended with a rejected answer
	Failed                // an attempt has failed: see [Event].Failover
	Cut                   // all attempts have failed, one by a cut: without the hedge the call fails
)

// Actions are the runner's tasks after one [State.Step]. Several fields may be set at once; the
// zero value has none. Hedges are given by number, from 1; 0 means no hedge.
type Actions struct {
	// Arm sets the race's only timer to fire once, at the age At of the call, in place of any
	// earlier setting. Disarm stops it. A Due event that is already on its way is harmless.
	Arm, Disarm bool
	At          time.Duration

	// Ask is the hedge to consider: to ask the policy about and, if it admits the hedge, to prepare.
	// No lock may be held. Turn is the number of hedges that count against MaxHedges, including this
	// one.
	Ask, Turn uint8
	Cause     Cause // of the hedge that is considered or sent
	Start     uint8 // the hedge to send; its end must be reported by an Ended event
	Drop      uint8 // a hedge that is paid for and must not be sent; its price may be refunded

	// Kept means that the attempt that just ended keeps its context. In this step or a later one it
	// wins or is in Cancel.
	Kept bool
	// Cancel is the set of losers to cancel: attempts in flight, which still report their ends,
	// and kept attempts.
	Cancel Attempts

	Decided bool  // this step decided the race
	Winner  uint8 // the attempt that decided it, with Decided and with Deliver
	// Deliver gives the caller the outcome of the winner, a success or a failure. Panic with it
	// repeats the winner's panic on the caller's goroutine. Deliver is set once in a race, when the
	// race is decided, no hedge is being considered and the primary has returned to the caller's
	// goroutine.
	Deliver, Panic bool
}

// Attempts is a set of attempts, by number.
type Attempts uint8

func (s Attempts) Has(n int) bool { return s&(1<<n) != 0 }

// MaxAttempts is the largest number of attempts of a race: a primary and four hedges.
const MaxAttempts = rpc.MaxAttempts

const MaxHedges = rpc.MaxHedges

// record is the record of one attempt.
type record struct {
	SentAt time.Duration
	Cause  Cause // of a hedge
	// Event is how the attempt ended before the outcome was delivered, at EndedAt. It is zero for an
	// attempt that had not ended. An end after the decision has no pushback.
	Event
	EndedAt time.Duration
	// CutShort means that another attempt decided the race while this one was in flight. The
	// attempt may have ended since, even with OK. An attempt that keeps its context is not in flight.
	CutShort bool
}

// NotBefore returns the age before which the attempt's server wants no other one; 0 without a
// pushback.
func (r *record) NotBefore() time.Duration {
	switch r.Pushback {
	case PushbackAfter:
		return r.EndedAt + r.Wait
	case PushbackNever:
		return math.MaxInt64
	}
	return 0
}

// Policy admits hedges, and takes the final state of the race. The race holds no lock while it
// calls a method.
type Policy interface {
	// Admit is called when hedge n is due, 1 being the first. It returns an event of the kind
	// Admitted, HeldBack or Refused. turn is [Actions.Turn]. soFar is a copy of the state. Calls of
	// Admit never overlap, and none follows Ended.
	Admit(n, turn int, soFar *State) Event
	// Judge decides the meaning of the end of attempt n, and returns an event of the kind Ended. It is
	// called at most once for an attempt, on the attempt's goroutine. open reports whether the race is
	// undecided; the call then waits for Judge. It is not called for a primary's success unless
	// Rules.Judged is set, nor for a loser whose status is neither OK nor UNAVAILABLE.
	Judge(n int, end End, open bool) Event
	// Ended takes the final state of the race, on the caller's goroutine.
	Ended(s *State)
	// EndedUntouched is called in place of Ended if the end of the primary was the only event.
	EndedUntouched(end End)
	// Sent is called when hedge n has been sent, on the hedge's goroutine and before its Run. The
	// call does not return before Sent does.
	Sent(n int, why Cause)
	// LoserPanicked is called when a loser panics after the delivery, at any time, on any goroutine.
	LoserPanicked()
}

// Entrant makes the attempts of one call.
type Entrant interface {
	// Primary makes the primary attempt and waits for its end. It runs on the caller's goroutine.
	Primary() End
	// Replayable reports whether the request can be sent again. It is called whenever a hedge is
	// due.
	Replayable() bool
	// Hedge prepares hedge n, or returns nil if that is impossible. ctx is the context of its Run. If
	// the hedge wins, ctx.Cancel frees it; the attempt may go on after its Run, as a stream does.
	//
	// The call does not return before Replayable and Hedge have returned. They may read the
	// caller's memory, and should be quick. The attempt that Hedge returns must not read it. Calls
	// of Replayable and Hedge never overlap.
	Hedge(n int, ctx *Context) Attempt
}

// MaxRequest is the largest size in bytes of a request that is kept to be sent again: a message as
// it is encoded, or the body of an HTTP request; and of the body of a failed response that waits
// for other attempts.
//
// If the primary answers while a request is copied, the call waits for the copy, because the caller
// may change its request after the call. MaxRequest bounds that wait. On the network, a larger
// request takes longer than most calls.
const MaxRequest = 1 << 20

// Attempt is one hedge, ready to run. Run makes the attempt under ctx and waits for its end.
type Attempt interface {
	Run(ctx *Context) End
}

// End is how an attempt has ended.
type End struct {
	Err     error
	Trailer metadata.MD // of an attempt that has failed; nil if unknown
	Served  bool        // a server sent the status Err; otherwise the status of a hedge does not end the race
	Open    bool        // the attempt needs its context while it may win, or for the rest of its response

	// For the function of WithAcceptable:
	Reply    any    // nil for a stream that ended without a message
	Rejected func() // is called if the end is not accepted; may be nil
}
