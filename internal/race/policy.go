package race

import (
	"google.golang.org/grpc/metadata"
)

// Policy admits hedges, and takes the final state of the race. The race holds no lock while it calls a
// method.
type Policy interface {
	// Admit is called when hedge n is due, 1 being the first. It returns an event of the kind
	// Admitted, HeldBack or Refused. turn is [Actions.Turn]. soFar is a copy of the state. Calls of
	// Admit never overlap, and none follows Ended.
	Admit(n, turn int, soFar *State) Event
	// Judge decides the meaning of the end of attempt n, and returns an event of the kind Ended. It is
	// called once for an attempt, on the attempt's goroutine. open reports whether the race is
	// undecided; the call then waits for Judge. It is not called for a primary's success unless
	// Rules.Judged is set.
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
	// Hedge prepares hedge n, or returns nil if that is impossible. ctx is the context of its Run. If the
	// hedge wins, ctx.Cancel frees it; the attempt may go on after its Run, as a stream does.
	//
	// The call does not return before Replayable and Hedge have returned. They may read the
	// caller's memory, and should be quick. The attempt that Hedge returns must not read it. Calls
	// of Replayable and Hedge never overlap.
	Hedge(n int, ctx *Context) Attempt
}

// MaxRequest is the largest size in bytes of a request that is kept to be sent again: a message as it
// is encoded, or the body of an HTTP request; and of the body of a failed response that waits for other
// attempts.
//
// If the primary answers while a request is copied, the call waits for the copy, because the caller may
// change its request after the call. MaxRequest bounds that wait. On the network, a larger request takes
// longer than most calls.
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
