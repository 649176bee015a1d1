package race

import (
	"context"
	"time"
)

// State is a race as a value, and its record. Step takes events, returns actions, and records both. It
// has no goroutine, lock, timer or clock. == compares states.
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
// The state is final once the outcome is delivered, and [Policy.Ended] takes it then: all counts and
// latencies are derived from it. A loser that is in flight at that time has no end in it. If that loser
// panics later, [Policy.LoserPanicked] is called.
//
// All times are ages of the call: durations since its start.
type State struct {
	rules Rules

	// Attempts has the primary at 0, and hedge n at n. At Hedges + 1 there may be a hedge that panicked
	// unsent. The rest is zero.
	Attempts [MaxAttempts]record
	Hedges   int // sent
	// Winner is the attempt that decided the race. Before the decision, it is the attempt with the best
	// rejected answer so far, or else the primary: the winner if no other attempt decides.
	Winner int
	// Due is the age at which the next hedge is due. While a hedge is considered, it is that hedge, and
	// in virtual time the age at which Admit is called.
	Due        time.Duration
	Cause      Cause // of the hedge that was considered last and is not sent yet
	CallerGone bool  // the caller's context ended before the race was decided

	turns     uint8 // hedges that count against MaxHedges: sent, and neither turned away nor cut
	asked     bool  // the next hedge is being considered: see Actions.Ask
	noMore    bool  // the call gets no further hedge
	calledFor bool  // an end made the next hedge due, so the race waits for it
	waits     bool  // an end has called for a hedge: from then on the race waits for hedges that are called for
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
	Committed     bool          // the primary's headers, received by the caller, decided the race
	NotReplayable bool          // a hedge could not be prepared

	// The rest is known once the outcome is delivered.

	Err         error // of the outcome; nil for a success or a panic
	Panicked    bool  // the outcome is a panic
	TurnedAway  int   // hedges that their servers turned away before the decision
	Failovers   int   // hedges that were due because another attempt had failed
	Rejected    int   // attempts that ended with a rejected answer
	LoserPanics int   // losers that panicked between the decision and the delivery
}

// TurnedAway reports whether the event is the end of a hedge that its server turned away: the hedge
// failed, and the server asks for the next attempt at once.
func (e Event) TurnedAway() bool {
	return e.Attempt > 0 && e.End == NonFatal && e.Pushback == PushbackAfter && e.Wait == 0
}

// IsRejected reports whether the attempt ended with a rejected answer.
func (k EndKind) IsRejected() bool { return k >= RejectedStatus }

// Attempts is a set of attempts, by number.
type Attempts uint8

func (s Attempts) Has(n int) bool { return s&(1<<n) != 0 }

// NewState returns the state of a race that is about to send its primary, and the actions that start
// it.
func NewState(p Plan) (State, Actions) {
	s, a := State{rules: p.Rules, Due: p.Due}, Actions{}
	s.rules.MaxHedges, s.rules.Delay = min(p.MaxHedges, MaxHedges), min(p.Delay, Longest)
	s.Attempts[0].SentAt = p.From
	s.setTimer(&a)
	return s, a
}

// Step takes an event that happened at the age now of the call, and returns the actions for it.
// Actions must be done in the order of the steps. An event that is out of place, for example a
// second end of the same attempt, changes nothing, and so does any event after the delivery. Step does
// not allocate.
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

// cause returns the cause of the hedge that is due. A hedge that was held back keeps a failure as its
// cause.
func (s *State) cause() Cause {
	switch {
	case s.cut && s.OnlyHope():
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
		s.calledFor, s.Due = true, now // ask again: the answer did not take the rejected reply into account
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

// send sends the hedge that was considered. The next hedge is due one delay later, unless an end has
// called for it.
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

// rejected returns the better kind of rejected answer so far; OK for none.
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

// decide makes attempt n win. The losers are the attempts in flight, and those that keep their contexts.
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

// OnlyHope reports whether all attempts have failed, so that the call fails unless another one is sent.
func (s *State) OnlyHope() bool {
	for n := range s.Hedges + 1 {
		if r := &s.Attempts[n]; r.Kind != Ended || r.End != NonFatal {
			return false
		}
	}
	return true
}

// FirstNotTurnedAway returns the first hedge that was not turned away; 0 if there is none.
func (s *State) FirstNotTurnedAway() int {
	for n := 1; n <= s.Hedges; n++ {
		if !s.Attempts[n].TurnedAway() {
			return n
		}
	}
	return 0
}

// Unanswered returns the time that attempt n had been in flight when another attempt decided the
// race: a lower bound of its latency. It returns false if attempt n ended before, or succeeded
// later.
func (s *State) Unanswered(n int) (time.Duration, bool) {
	a := &s.Attempts[n]
	answered := a.Kind == Ended && (a.End == OK || a.End == RejectedReply)
	return s.DecidedAt - a.SentAt, a.CutShort && !answered
}

// Latency returns the latency of hedge n, or, if the hedge was cut short or ended with the caller's
// context, a lower bound: answered is then false. known is false for a hedge that failed earlier.
func (s *State) Latency(n int) (latency time.Duration, answered, known bool) {
	if bound, cut := s.Unanswered(n); cut {
		return bound, false, true
	}
	a := &s.Attempts[n]
	if s.CallerGone && a.Err != nil && s.GoneAt <= a.EndedAt {
		return a.EndedAt - a.SentAt, false, true
	}
	return a.EndedAt - a.SentAt, true, n == s.Winner && a.End != NonFatal || a.CutShort
}
