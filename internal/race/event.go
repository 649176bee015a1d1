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

	// Ask is the hedge to consider: to ask the policy about and, if it admits the hedge, to prepare. No
	// lock may be held. Turn is the number of hedges that count against MaxHedges, including this one.
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

// NotBefore returns the age before which the attempt's server wants no other one; 0 without a pushback.
func (r *record) NotBefore() time.Duration {
	switch r.Pushback {
	case PushbackAfter:
		return r.EndedAt + r.Wait
	case PushbackNever:
		return math.MaxInt64
	}
	return 0
}
