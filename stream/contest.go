package stream

import (
	"context"
	"sync"
	"time"

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
	known   bool          // another call has it, so that it is not used again; the stream's lock guards it
}

// contests is a pool. Only contests in which no hedge was due are put back: a losing hedge may use its contest after the race.
var contests = sync.Pool{New: func() any { return new(contest) }}

func (k *contest) recycle() {
	k.Call, k.stream, k.replies, k.keeps = nil, nil, attempt.Reply{}, false
	contests.Put(k)
}

// grace is the time that the primary gets before the first hedge, if RecvMsg is called after that hedge was due. The first
// message may be there already.
const grace = time.Millisecond

// decide runs the race and returns the winner, which is then chosen. If the goal is the first message, the primary receives it
// into the given message.
func (k *contest) decide(into any) *streamAttempt {
	c := k.stream
	c.primary.goal, c.primary.into = k.goal, into
	winner, reusable := &c.primary, false
	defer func() { // also if an attempt panics
		c.request.release()
		c.choose(winner)
		if reusable {
			k.recycle()
		}
	}()
	out := k.race.Run(c.caller, c.primary.cancel, c.startPlan(k.askedAt), k, k)
	if out.Untouched {
		k.endUntouched(out.Err)
	}
	if out.Winner != nil {
		if !c.plan.Detached { // then the primary may run on
			c.primary.cancel(race.ErrLost)
		}
		winner = out.Winner.(*streamAttempt)
	}
	if k.keeps { // the first message, or the end of the stream, for the next RecvMsg
		winner.held, winner.ended = winner.err == nil, winner.err
	}
	if out.Untouched {
		c.mu.Lock()
		c.contest, reusable = nil, !k.known
		c.mu.Unlock()
	}
	return winner
}

// startPlan is the plan of a race that begins at the given age. The call's delay may have changed since it began, by what the
// user says of the request, but not the kind of its contexts.
func (c *clientStream) startPlan(age time.Duration) race.Plan {
	plan := c.plan
	if c.inspects {
		few := c.call.FewResets // its primary is open already
		if changed, hedged := c.call.Plan(); hedged {
			changed.Detached, changed.LetGo, c.call.FewResets = plan.Detached, plan.LetGo, few
			plan = changed
		}
	}
	return plan.StartAt(age, grace)
}

// endUntouched ends the call by its primary, which ended with err before a hedge was due, unless its headers are all that came.
func (k *contest) endUntouched(err error) {
	c := k.stream
	if err == nil && k.goal != firstMessage && !c.primary.answered() {
		return
	}
	age := k.Age()
	e := call.End{Err: err, Age: age, AskedAt: k.askedAt, Early: c.headersWaited().early(k.askedAt, age)}
	if c.tracksFailures && err != nil {
		e.Trailer = c.primary.Trailer()
	}
	k.End(e)
	c.ending = told
}

// Book ends the call by the report of its race. If headers have decided it, the first message is still to come.
func (k *contest) Book(r *race.Report) {
	c := k.stream
	e := call.End{Race: r, AskedAt: k.askedAt, Early: c.headersWaited().early(k.askedAt, k.Age()), Headers: k.goal != firstMessage}
	e.Over = r.Attempts[0].HasEnded && c.primary.answered() // one that has lost may still receive
	c.ending = told
	switch winner := &r.Attempts[r.Winner]; {
	case !e.Headers, r.Panicked:
	case r.Winner == 0 && !e.Over:
		c.ending = toldHeaders
	case r.Winner > 0 && winner.End != race.NonFatal:
		hedge := *winner // the report is not kept
		c.ending, c.hedgeWon = toldHeaders, &hedge
	}
	k.End(e)
}

func (k *contest) Primary() error { return k.stream.primary.awaitGoal() }

func (k *contest) Seen() race.Seen { return k.stream.primary.Seen() }

// Replayable returns shared only for a detached race, whose losers must then not run on. Otherwise the request itself waits
// for the hedges that read the caller's message.
func (k *contest) Replayable() (ok, shared bool) {
	ok, shared = k.stream.request.replayable()
	return ok, shared && k.stream.plan.Detached
}

func (k *contest) Hedge(n int, cancel context.CancelCauseFunc) race.Attempt {
	h := &streamAttempt{stream: k.stream, n: uint8(n), goal: k.goal, cancel: cancel}
	if k.goal == firstMessage {
		h.into = k.replies.Make()
	}
	return h
}

func (k *contest) Accepts(err error) (ok, open bool) { return k.stream.primary.Accepts(err) }

// Drain receives and drops the rest of a primary that has lost a detached race.
func (k *contest) Drain() { k.stream.primary.Drain() }
