package race

import (
	"math"
	"time"
)

// Longest is the longest delay, 73 years; a longer one means the same. The sum of three delays and
// an age does not overflow.
const Longest = time.Duration(math.MaxInt64 / 4)

// Rules define how a race ends and when it sends hedges. They do not change during a race.
type Rules struct {
	// Delay is the time from the start of the call to the first hedge, and from each hedge to the
	// next. A delay above Longest means Longest.
	Delay time.Duration
	// MaxHedges is the maximum number of hedges of the call, 0 to the constant MaxHedges. Hedges that
	// were turned away or cut do not count, unless CountsAll is set.
	MaxHedges uint8
	CountsAll bool
	// HedgeFinal lets a hedge's Final status end the race, as the primary's does. Otherwise a hedge
	// ends the race only with OK: the "not found" of a second deletion must not replace the OK of
	// the first.
	HedgeFinal bool
	// Judged allows rejected answers. A rejected answer makes the next hedge due at once, and the
	// race waits for it unless it is held back. Without an OK the outcome is, in this order: the first
	// rejected reply, an accepted status, the first rejected status.
	Judged bool
}

// Machine decides one race. It takes events and returns actions. It has no goroutine, lock, timer
// or clock. It is a plain value that == compares.
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
// All times are ages of the call: durations since its start.
type Machine struct {
	rules Rules

	decided   bool
	asked     bool     // the next hedge is being considered: see Actions.Ask
	sent      uint8    // hedges sent
	turns     uint8    // hedges that count against MaxHedges: sent, and neither turned away nor cut
	inFlight  Attempts // attempts that have been sent and have not ended
	winner    uint8    // once decided
	panicked  bool     // the winner's end was a panic
	gone      bool     // the caller's context has ended
	noMore    bool     // the call gets no further hedge
	calledFor bool     // an end made the next hedge due, so the race waits for it
	waits     bool     // the race waits for hedges that are called for
	rejected  EndKind  // the better kind of rejected answer so far; OK for none
	answer    uint8    // the first attempt that ended with it
	kept      Attempts // attempts that have ended and keep their contexts
	stale     bool     // a rejected answer or a failover came after the last Ask
	failover  bool     // the next hedge is due because an attempt failed since the last Ask
	rescues   bool     // the hedge that was considered last, and not sent yet, is due because of a failure
	delivered bool

	due     time.Duration // when the next hedge is due
	armed   bool
	armedAt time.Duration // when the timer fires, if armed
}

// Attempts is a set of attempts, by number.
type Attempts uint8

func (s Attempts) Has(n int) bool { return s&only(uint8(n)) != 0 }

func only(n uint8) Attempts { return 1 << n }

// NewMachine returns the machine of a race that is about to send its primary, and the actions that
// start it. firstDue is the age of the call at which the first hedge is due: Rules.Delay, or later
// if the race starts after the call.
func NewMachine(r Rules, firstDue time.Duration) (Machine, Actions) {
	r.MaxHedges, r.Delay = min(r.MaxHedges, MaxHedges), min(r.Delay, Longest)
	m := Machine{rules: r, inFlight: only(0), due: firstDue}
	var a Actions
	m.setTimer(&a)
	return m, a
}

// Step takes an event that happened at the age now of the call, and returns the actions for it.
// Actions must be done in the order of the steps. An event that is out of place, for example a
// second end of the same attempt, changes nothing. Step does not allocate.
func (m *Machine) Step(e Event, now time.Duration) Actions {
	var a Actions
	switch e.Kind {
	case Due:
		m.fired(now, &a)
	case Admitted, HeldBack, Refused, NotReplayable:
		if m.asked {
			m.answered(e, now, &a)
		}
	case Ended:
		switch {
		case m.inFlight.Has(int(e.Attempt)):
			m.inFlight &^= only(e.Attempt)
			m.ended(e, now, &a)
		case m.asked && e.Attempt == m.sent+1 && e.End == Panicked:
			m.asked = false
			m.drop(e, &a)
			m.ended(e, now, &a)
		}
	case Committed:
		if !m.decided && m.inFlight.Has(0) {
			m.decide(0, &a)
		}
	case CallerGone:
		m.gone = m.gone || !m.decided
	}
	if m.concluded() {
		m.conclude(&a)
	}
	m.setTimer(&a)
	m.deliver(&a)
	return a
}

// fired handles Due. If the timer fired before the hedge is due, setTimer arms it again.
func (m *Machine) fired(now time.Duration, a *Actions) {
	m.armed = false
	if m.waitsForDue() && now >= m.due {
		m.rescues = m.rescues || m.failover
		m.calledFor, m.stale, m.failover = false, false, false
		m.asked = true
		a.Ask, a.Turn, a.Failover = m.sent+1, m.turns+1, m.rescues
	}
}

// answered handles the answer to Ask, and sends the hedge if it may be sent.
func (m *Machine) answered(e Event, now time.Duration, a *Actions) {
	m.asked = false
	if e.Kind == HeldBack && m.stale {
		m.calledFor, m.due = true, now // ask again: the answer did not take the rejected reply into account
		return
	}
	switch e.Kind {
	case Admitted:
		if !m.over() {
			m.send(now, a)
			return
		}
	case HeldBack:
		m.calledFor, m.due = e.Waits, e.Until // by default, do not wait for a hedge that may never be sent
	case Refused, NotReplayable:
		m.noMore = true
	}
	m.drop(e, a)
}

func (m *Machine) drop(e Event, a *Actions) {
	if e.Paid {
		a.Drop = m.sent + 1
	}
}

// send sends the hedge that was considered. The next hedge is due one delay later, unless an end has
// called for it.
func (m *Machine) send(now time.Duration, a *Actions) {
	m.sent++
	m.turns++
	a.Failover, m.rescues = m.rescues, false
	if m.failover = m.failover && m.calledFor; !m.calledFor {
		m.due = now + m.rules.Delay
	}
	m.inFlight |= only(m.sent)
	a.Start = m.sent
}

func (m *Machine) ended(e Event, now time.Duration, a *Actions) {
	primary := e.Attempt == 0
	if a.Kept = e.Open && !m.decided; a.Kept {
		m.kept |= only(e.Attempt)
	}
	switch {
	case m.decided:
		if e.Attempt == m.winner { // a primary that was committed
			m.panicked = e.End == Panicked
		}
	case e.End == OK, e.End == Panicked:
		m.panicked = e.End == Panicked
		m.decide(e.Attempt, a)
	case e.End == RejectedReply:
		m.failed(e, now)
	case primary && (m.gone || e.End == Final && m.rejected != RejectedReply):
		m.decide(0, a)
	case m.gone:
		// The hedge ended with the caller's context. The primary returns soon, and decides the
		// race.
	case e.End == Final && m.rules.HedgeFinal && m.rejected != RejectedReply:
		m.decide(e.Attempt, a)
	default:
		m.failed(e, now)
	}
}

// failed handles an attempt that ended without deciding the race.
func (m *Machine) failed(e Event, now time.Duration) {
	away := e.TurnedAway() && !m.rules.CountsAll
	if away || e.Cut && e.Attempt > 0 && !m.rules.CountsAll {
		m.turns--
	}
	if e.End.IsRejected() || e.Failover {
		m.waits, m.stale = true, true
	}
	if e.End.IsRejected() && e.End > m.rejected {
		m.rejected, m.answer = e.End, e.Attempt
	}
	if (e.End.IsRejected() || e.Failover || away) && m.room() {
		m.calledFor, m.failover, m.due = true, m.failover || e.Failover, now
	}
}

// concluded reports whether no event can decide the race.
func (m *Machine) concluded() bool {
	switch {
	case m.decided:
		return false
	case m.gone:
		return !m.inFlight.Has(0) || m.rejected != OK
	}
	return m.inFlight == 0 && !m.hedgeToCome()
}

// conclude decides a race that is concluded.
func (m *Machine) conclude(a *Actions) {
	switch {
	case m.rejected != OK:
		m.decide(m.answer, a)
	default:
		m.decide(0, a)
	}
}

func (m *Machine) decide(n uint8, a *Actions) {
	m.decided, m.winner = true, n
	a.Decided, a.Winner = true, n
	a.Cancel = (m.inFlight | m.kept) &^ only(n)
}

// deliver sets Deliver once the race is decided and no attempt uses the caller's memory.
func (m *Machine) deliver(a *Actions) {
	if !m.decided || m.delivered || m.asked || m.inFlight&(only(0)|only(m.winner)) != 0 {
		return
	}
	m.delivered = true
	a.Deliver, a.Panic, a.Winner = true, m.panicked, m.winner
}

// setTimer arms the timer for the next hedge, or stops it if none is to come.
func (m *Machine) setTimer(a *Actions) {
	switch wanted := m.waitsForDue(); {
	case wanted && (!m.armed || m.armedAt != m.due):
		m.armed, m.armedAt = true, m.due
		a.Arm, a.At = true, m.due
	case !wanted && m.armed:
		m.armed, m.armedAt = false, 0
		a.Disarm = true
	}
}

// over reports whether the race sends no further hedge.
func (m *Machine) over() bool { return m.decided || m.gone || m.noMore }

// waitsForDue reports whether the race waits until its next hedge is due.
func (m *Machine) waitsForDue() bool {
	return !m.over() && !m.asked && m.room()
}

// room reports whether a further hedge may be sent, besides the one that is being considered.
func (m *Machine) room() bool {
	considered := uint8(0)
	if m.asked {
		considered = 1
	}
	return m.turns+considered < m.rules.MaxHedges && m.sent+considered < MaxHedges
}

// hedgeToCome reports whether the race waits for an unsent hedge that an end called for.
func (m *Machine) hedgeToCome() bool {
	return m.waits && !m.over() && (m.asked || m.calledFor)
}
