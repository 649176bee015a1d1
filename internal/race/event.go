package race

import (
	"time"

	"github.com/grpchedge/hedge/internal/rpc"
)

// Event is one thing that happened in a race. Fields that do not name its Kind are zero.
type Event struct {
	Kind     EventKind
	Attempt  uint8    // Ended: which attempt, 0 being the primary
	End      EndKind  // Ended: how
	Open     bool     // Ended with RejectedReply: the attempt needs its context while it may win
	Pushback Pushback // Ended with Final, NonFatal or RejectedStatus: the server's pushback
	// Repeat, of Ended with NonFatal, allows the race to send the call again: see repeat.go.
	Repeat bool
	// Failover, of Ended with NonFatal, makes the next hedge due at once, as a rejected answer does.
	Failover bool
	Wait     time.Duration // Ended with PushbackAfter: the server's wait from now; at least 0
	Until    time.Duration // HeldBack: the age of the call at which admission may be asked again
}

type EventKind uint8

const (
	// Due: the timer fired. It may have been stopped or armed again since.
	Due EventKind = iota

	// Answers to Actions.Ask:

	Admitted // the hedge is paid for and may be sent
	HeldBack // not yet; ask again at Event.Until
	Refused  // this call gets no more hedges

	// Answers to Actions.Prepare, NotReplayable also to Ask:

	Prepared      // the hedge can be sent and does not read the caller's memory
	NotReplayable // the request cannot be sent twice; the call gets no more hedges

	Ended      // an attempt has an outcome; the primary has returned to the caller's goroutine
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

	// Ask is the hedge to ask the policy about. Turn is the number of hedges considered so far,
	// including this one. It stays the same if the policy is asked about the hedge
	// again.
	Ask, Turn uint8
	Repeat    bool  // the hedge that is considered, or was sent last, repeats the call
	Failover  bool  // the hedge that is considered or sent is due because an attempt failed
	Prepare   uint8 // the hedge to prepare, without holding a lock
	Start     uint8 // the hedge to send; its end must be reported by an Ended event
	Drop      uint8 // an admitted hedge that must not be sent; its price may be refunded

	// Kept means that the attempt that just ended with RejectedReply keeps its context. In this
	// step or a later one it wins or is in Cancel.
	Kept bool
	// Cancel is the set of losers to cancel: attempts in flight, which still report their ends,
	// and kept attempts.
	Cancel Attempts

	Decided bool  // this step decided the race
	Winner  uint8 // the attempt that decided it, with Decided and with Deliver
	// Deliver gives the caller the outcome of the winner, a success or a failure. Panic with it
	// repeats the winner's panic on the caller's goroutine. Deliver is set once in a race, when the
	// race is decided, no hedge is being prepared and the primary has returned to the caller's
	// goroutine.
	Deliver, Panic bool
}

// MaxAttempts is the largest number of attempts of a race: a primary and four hedges.
const MaxAttempts = rpc.MaxAttempts

type Attempts uint8

func (s Attempts) Has(n int) bool { return s&only(uint8(n)) != 0 }

func only(n uint8) Attempts { return 1 << n }
