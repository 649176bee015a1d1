package race

import "time"

// Event is one thing that happened to a race. The fields that its Kind does not name are zero.
type Event struct {
	Kind     EventKind
	Attempt  uint8         // Ended: which attempt, 0 being the primary
	End      EndKind       // Ended: how
	Open     bool          // Ended with RejectedReply: the attempt needs its context for as long as it may win
	Pushback Pushback      // Ended with Final, NonFatal or RejectedStatus: what the server said about further attempts
	Repeat   bool          // Ended with NonFatal: if nothing else answers, the call is sent again, once, by a hedge that is due at once
	Wait     time.Duration // Ended with PushbackAfter: how long from now the server wants none; at least 0
	Until    time.Duration // HeldBack: the age of the call at which admission may be asked again
}

type EventKind uint8

const (
	// Due: the timer fired. It may have been stopped or armed again in the meantime.
	Due EventKind = iota

	// Answers to Actions.Ask:

	Admitted // the hedge is paid for and may be sent
	Skipped  // sampling leaves this hedge out; the next one is due one delay later
	HeldBack // not now; ask again at Event.Until
	Refused  // this call gets no more hedges

	// Answers to Actions.Prepare, NotReplayable also to Ask:

	Prepared      // the hedge can be sent, and no longer reads the caller's memory
	NotReplayable // the request cannot be sent twice; the call gets no more hedges

	Ended      // an attempt has an outcome; the primary has returned to the caller's goroutine
	Committed  // the caller of a stream has received the primary's headers, so the primary must win
	CallerGone // the caller's context has ended
)

// TurnedAway reports whether the attempt that has ended is a hedge that its server turned away: the
// hedge failed, and the server asks for the next attempt at once.
func (e Event) TurnedAway() bool {
	return e.Attempt > 0 && e.End == NonFatal && e.Pushback == PushbackAfter && e.Wait == 0
}

// EndKind is how an attempt ended. The last two are with Rules.Judged only.
type EndKind uint8

const (
	OK             EndKind = iota // an answer
	Final                         // a status that says that the server looked at the request and answered
	NonFatal                      // any other status
	Panicked                      // a panic or a runtime.Goexit
	RejectedReply                 // a success that is not accepted as an answer
	RejectedStatus                // a Final status that would end the race, but is not accepted as an answer
)

// IsRejected reports whether the attempt gave an answer that was not accepted.
func (e EndKind) IsRejected() bool { return e == RejectedReply || e == RejectedStatus }

// Pushback is what the trailer of a failed attempt says about further attempts.
type Pushback uint8

const (
	NoPushback    Pushback = iota // it does not mention them
	PushbackAfter                 // none before Event.Wait has passed
	PushbackNever                 // none at all
)

// Actions is what the runner of a race must do after one [Machine.Step]. Several fields may be set at once. The zero value
// means that there is nothing to do. Hedges are given by their number, from 1; 0 means no hedge.
type Actions struct {
	// Arm says to arm the one timer of the race to fire once, at the age At of the call, in place of any earlier time. Disarm says
	// to stop it. A Due event that is already on its way does no harm.
	Arm, Disarm bool
	At          time.Duration

	// Ask is the hedge for which to ask whether it may be sent. Turn counts the hedges considered so far, including this one and
	// skipped ones. It does not change when the question is repeated for the same hedge.
	Ask, Turn uint8
	Repeat    bool  // the hedge in Ask or Start sends the call again: see [Event].Repeat
	Prepare   uint8 // the hedge to prepare, without holding a lock
	Start     uint8 // the hedge to send; its end must be reported by an Ended event
	Drop      uint8 // a hedge that was admitted and must not be sent, so that its price may be paid back

	// Kept says that the attempt that has just ended with RejectedReply keeps its context. It wins, or it is in Cancel, in this step
	// or in a later one.
	Kept bool
	// Cancel is the losers that must be cancelled, because another attempt has won: those in flight, whose ends must still be
	// reported, and those that were kept.
	Cancel Attempts

	Decided bool  // this step decided the race
	Winner  uint8 // the attempt that decided it, with Decided and with Deliver
	// Deliver says to give the caller the outcome of the winner, a success or a failure. With Panic that is to panic on the caller's
	// goroutine with what the winner panicked with. It is set once in a race, in the step that decides it or in a later one. At
	// that time no hedge is being prepared, and the primary has returned to the caller's goroutine.
	Deliver, Panic bool
}

// MaxAttempts is the most attempts that a race can have: a primary and four hedges.
const MaxAttempts = 5

type Attempts uint8

func (s Attempts) Has(n int) bool { return s&only(uint8(n)) != 0 }

func only(n uint8) Attempts { return 1 << n }
