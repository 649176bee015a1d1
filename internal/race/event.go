package race

import "time"

// Event is one thing that happened to a race. The fields that its Kind does not name are zero.
type Event struct {
	Kind     EventKind
	Attempt  uint8         // Ended: which attempt, 0 being the primary
	End      End           // Ended: how
	Open     bool          // Ended with PoorReply: the attempt needs its context for as long as it may win
	Pushback Pushback      // Ended with Final, NonFatal or PoorStatus: what the server said about further attempts
	Cut      bool          // Ended: the connection may have been cut
	Repeat   bool          // Ended with Cut: the call may be repeated once
	Conn     string        // Ended with Repeat: which connection it was, if the request may be what cut it
	Wait     time.Duration // Ended with PushbackAfter: how long from now the server wants none; at least 0
	Until    time.Duration // HeldBack: the age of the call at which admission may be asked again
}

// EventKind says what happened.
type EventKind uint8

const (
	// Due: the timer fired. It may have been stopped or armed again in the meantime.
	Due EventKind = iota
	// Admitted is an answer to Actions.Ask: the hedge is paid for and may be sent.
	Admitted
	// Skipped is an answer to Actions.Ask: sampling leaves this hedge out. The next one is due one delay later.
	Skipped
	// HeldBack is an answer to Actions.Ask: not now. Ask again at Event.Until.
	HeldBack
	// Refused is an answer to Actions.Ask: this call gets no more hedges.
	Refused
	// Prepared is an answer to Actions.Prepare: the hedge can be sent, and no longer reads the caller's memory.
	Prepared
	// NotReplayable is an answer to Actions.Ask or Actions.Prepare: the request cannot be sent twice, so this call gets no
	// more hedges.
	NotReplayable
	// Ended: an attempt has an outcome. Without Rules.Detached, the end of the primary also means that the primary has
	// returned to the caller's goroutine.
	Ended
	// Committed: the caller of a stream has received the primary's headers, so the primary must win.
	Committed
	// Cancelled: the caller's context was cancelled.
	Cancelled
	// DeadlinePassed: the caller's deadline passed.
	DeadlinePassed
)

// End is how an attempt ended.
type End uint8

const (
	// OK is an answer.
	OK End = iota
	// Final is a status that says that the server looked at the request and answered.
	Final
	// NonFatal is any other status.
	NonFatal
	// Panicked is a panic or a runtime.Goexit.
	Panicked
	// PoorReply is a success that is not accepted as an answer. With Rules.Judged only.
	PoorReply
	// PoorStatus is a Final status that would end the race, but is not accepted as an answer. With Rules.Judged only.
	PoorStatus
)

// IsPoor reports whether the attempt gave an answer that was not accepted.
func (e End) IsPoor() bool { return e == PoorReply || e == PoorStatus }

// Pushback is what the trailer of a failed attempt says about further attempts.
type Pushback uint8

const (
	// NoPushback: the trailer does not mention them.
	NoPushback Pushback = iota
	// PushbackAfter: none before Event.Wait has passed.
	PushbackAfter
	// PushbackNever: none at all.
	PushbackNever
)
