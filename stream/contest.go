package stream

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
)

type goal uint8

const (
	firstMessage    goal = iota // the first message, or the end of the stream
	responseHeaders             // the response headers, or the end of a stream without
)

// contest is the race of a stream's attempts. It is a [race.Policy], mostly by its call, and the [race.Entrant]. The call of
// RecvMsg or Header that began it runs it.
type contest struct {
	*call.Call
	stream  *clientStream
	race    race.Race
	goal    goal
	askedAt time.Duration // the call's age when RecvMsg or Header was called
	replies attempt.Reply // makes the messages that hedges receive into
	keeps   bool          // Header runs the race for the first message, which is kept for RecvMsg
}

// grace is the time that the primary gets before the first hedge, if RecvMsg is called after that hedge was due. The first
// message may be there already.
const grace = time.Millisecond

// decide runs the race and returns the winner, which is then chosen. If the goal is the first message, the primary receives it
// into the given message; nil if nobody knows into what the caller will receive it.
func (k *contest) decide(into any) *streamAttempt {
	c := k.stream
	c.primary.goal, c.primary.into = k.goal, into
	winner := &c.primary
	defer func() { // also if an attempt panics
		c.choose(winner)
	}()
	out := k.race.Run(c.caller, c.primary.cancel, c.call.Plan().StartAt(k.askedAt, grace), k, k)
	if out.Untouched {
		k.endUntouched(out.Err)
	}
	if out.Winner != nil {
		c.primary.cancel(race.ErrLost)
		winner = out.Winner.(*streamAttempt)
	}
	if k.keeps { // the first message, or the end of the stream, for the next RecvMsg
		winner.held, winner.ended = winner.err == nil, winner.err
	}
	return winner
}

// endUntouched ends the call by its primary, which ended with err before a hedge was due. If that was headers, the first message is
// still to come.
func (k *contest) endUntouched(err error) {
	c := k.stream
	if err == nil && k.goal == responseHeaders {
		return
	}
	e := call.End{Err: err, Age: k.Age(), AskedAt: k.askedAt}
	if c.tracksFailures && err != nil {
		e.Trailer = c.primary.Trailer()
	}
	c.end(e)
}

// Book ends the call by the report of its race. If headers have decided it, the first message is still to come.
func (k *contest) Book(r *race.Report) {
	c := k.stream
	k.Raced(r)
	if k.goal == responseHeaders && r.Err == nil && !r.Panicked {
		raced := *r // it is valid only now
		c.raced = &raced
		return
	}
	c.end(call.End{Race: r, Headers: k.goal == responseHeaders, Err: r.Err, Age: r.DeliveredAt, AskedAt: k.askedAt})
}

func (k *contest) Primary() error { return k.stream.primary.awaitGoal() }

func (k *contest) Trailer() metadata.MD { return k.stream.primary.Trailer() }

func (k *contest) Replayable() bool { return k.stream.copied.Load() != nil }

func (k *contest) Hedge(n int, cancel context.CancelCauseFunc) race.Attempt {
	h := &streamAttempt{stream: k.stream, n: uint8(n), goal: k.goal, cancel: cancel}
	if k.goal == firstMessage && !k.keeps {
		h.into = k.replies.Make()
	}
	return h
}

func (k *contest) Accepts(err error) (ok, open bool) { return k.stream.primary.Accepts(err) }
