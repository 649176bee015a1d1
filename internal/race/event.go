package race

import (
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/rpc"
)

// Event is one thing that happened in a race. A field is zero unless its comment names the Kind.
type Event struct {
	Kind     EventKind
	Attempt  uint8    // Ended: which attempt, 0 being the primary
	End      EndKind  // Ended: how
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
	Committed  // the caller of a stream has received the primary's headers, so the primary must win
	CallerGone // the caller's context has ended
)

// TurnedAway reports whether the event is the end of a hedge that its server turned away: the hedge
// failed, and the server asks for the next attempt at once.
func (e Event) TurnedAway() bool {
	return e.Attempt > 0 && e.End == NonFatal && e.Pushback == PushbackAfter && e.Wait == 0
}

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

// Actions are the runner's tasks after one [Machine.Step]. Several fields may be set at once; the
// zero value has none. Hedges are given by number, from 1; 0 means no hedge.
type Actions struct {
	// Arm sets the race's only timer to fire once, at the age At of the call, in place of any
	// earlier setting. Disarm stops it. A Due event that is already on its way is harmless.
	Arm, Disarm bool
	At          time.Duration

	// Ask is the hedge to consider: to ask the policy about and, if it admits the hedge, to prepare. No
	// lock may be held. Turn is the number of hedges that count against MaxHedges, including this one.
	Ask, Turn uint8
	Failover  bool  // the hedge that is considered or sent is due because an attempt failed
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

// MaxAttempts is the largest number of attempts of a race: a primary and four hedges.
const MaxAttempts = rpc.MaxAttempts

const MaxHedges = rpc.MaxHedges

// Report is the record of one race. [Policy.Ended] takes it once, when the outcome is delivered. All
// counts and latencies are derived from it. All times are ages of the call: durations since its
// start.
//
// A loser that is in flight when the report is made has no end in it. If that loser panics later,
// [Policy.LoserPanicked] is called.
type Report struct {
	Winner   int   // the attempt that decided the call, 0 being the primary; Hedges + 1 if that hedge panicked unsent
	Panicked bool  // the outcome is a panic
	Err      error // of the outcome; nil for a success or a panic

	// DecidedAt is the time of the decision, and DeliveredAt the time at which the caller gets the
	// outcome. Between them the primary returns, or a hedge is prepared.
	DecidedAt, DeliveredAt time.Duration

	CallerGone bool          // the caller's context ended before the race was decided
	GaveUp     bool          // CallerGone, and not by the deadline
	GoneAt     time.Duration // the time of CallerGone
	Committed  bool          // the primary's headers, received by the caller, decided the race

	Hedges     int // sent
	TurnedAway int // hedges that their servers turned away before the decision: see [Event.TurnedAway]
	Failovers  int // hedges that were due because another attempt had failed
	Rejected   int // attempts that ended with a rejected answer
	// Failover means that the hedge that Admit considers is due because an attempt failed: see
	// [Event].Failover.
	Failover bool

	NotReplayable bool // a hedge could not be prepared
	// Due is the age at which the hedge that Admit considers was due. In virtual time that is the age
	// at which Admit is called.
	Due         time.Duration
	LoserPanics int // losers that panicked between the decision and the delivery

	Attempts [MaxAttempts]AttemptReport // the primary at 0, hedge n at n; zero beyond Hedges
}

// AttemptReport is the record of one attempt.
type AttemptReport struct {
	SentAt time.Duration
	// Event is how the attempt ended before the report was delivered, at EndedAt and with Err, a status
	// other than OK. It is zero for an attempt that had not ended. An end after the decision has no
	// pushback.
	Event
	EndedAt time.Duration
	Err     error
	// CutShort means that another attempt decided the race while this one was in flight. The
	// attempt may have ended since, even with OK. An attempt that keeps its context is not in flight.
	CutShort bool
}

// NotBefore returns the age before which the attempt's server wants no other one; 0 without a pushback.
func (a *AttemptReport) NotBefore() time.Duration {
	switch a.Pushback {
	case PushbackAfter:
		return a.EndedAt + a.Wait
	case PushbackNever:
		return math.MaxInt64
	}
	return 0
}

// FirstNotTurnedAway returns the first hedge that was not turned away; 0 if there is none.
func (r *Report) FirstNotTurnedAway() int {
	for n := 1; n <= r.Hedges; n++ {
		if !r.Attempts[n].TurnedAway() {
			return n
		}
	}
	return 0
}

// Unanswered returns the time that attempt n had been in flight when another attempt decided the
// race: a lower bound of its latency. It returns false if attempt n ended before, or succeeded
// later.
func (r *Report) Unanswered(n int) (time.Duration, bool) {
	a := &r.Attempts[n]
	answered := a.Kind == Ended && (a.End == OK || a.End == RejectedReply)
	return r.DecidedAt - a.SentAt, a.CutShort && !answered
}

// Latency returns the latency of hedge n, or, if the hedge was cut short or ended with the caller's
// context, a lower bound: answered is then false. known is false for a hedge that failed earlier.
func (r *Report) Latency(n int) (latency time.Duration, answered, known bool) {
	if bound, cut := r.Unanswered(n); cut {
		return bound, false, true
	}
	a := &r.Attempts[n]
	if r.CallerGone && a.Err != nil && r.GoneAt <= a.EndedAt {
		return a.EndedAt - a.SentAt, false, true
	}
	return a.EndedAt - a.SentAt, true, n == r.Winner && a.End != NonFatal || a.CutShort
}
