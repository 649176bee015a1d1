package stream

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/race"
)

// clientStream is one call: the [grpc.ClientStream] that the caller gets.
//
// The first call of RecvMsg or Header runs the race. Other calls wait until the race is decided. No lock is held while a
// call waits.
type clientStream struct {
	call        engine.Call
	caller      context.Context
	plan        race.Plan
	desc        *grpc.StreamDesc
	cc          *grpc.ClientConn
	method      string
	streamer    grpc.Streamer
	options     attempt.Options
	types       *messageTypes     // nil unless WaitForMessage names the method
	callOptions []grpc.CallOption // the caller's

	tracksFailures bool // failures and their trailers count, for a throttle or a hedgingPolicy
	committed      bool // the method has a hedgingPolicy, so response headers decide the race
	inspects       bool // what the user says of the request decides when it is hedged, or what a hedge costs
	inspected      bool // that is known; used by SendMsg only

	primary streamAttempt
	cancel  context.CancelCauseFunc // the primary's
	bound   context.Context         // the primary's, which ends by cancel

	// chosen is the attempt that won, or nil before that. forward is the same attempt, set after the first message was
	// received and learned from: then all calls are forwarded to it.
	chosen, forward atomic.Pointer[streamAttempt]
	context         atomic.Pointer[callContext] // nil unless Context was called while chosen was nil
	request         request

	mu      sync.Mutex    // guards the fields down to headers, and every change of chosen
	opened  bool          // the primary's stream is open
	racing  bool          // the race has begun
	goal    goal          // what the race is for; written before it runs
	decided chan struct{} // closed when an attempt is chosen; nil unless a call waits for that
	headers headerWait    // the wait for the headers that decided the call

	race race.Race

	// Only the call that runs the race uses the fields below, and then only RecvMsg.
	replies  attempt.Reply // makes the messages that hedges receive into
	into     any           // what the primary receives into
	keeps    bool          // Header runs the race for the first message, which is kept for RecvMsg
	askedAt  time.Duration // the call's age when RecvMsg or Header was called
	ending   ending
	hedgeWon *race.AttemptReport // the hedge that won by its headers; nil if none did
}

// goal is what a race is for.
type goal uint8

const (
	firstMessage    goal = iota // the first message, or the end of the stream
	responseHeaders             // the response headers, or the end of a stream without
)

func (c *clientStream) RecvMsg(m any) error {
	if d := c.forward.Load(); d != nil {
		err := d.ClientStream.RecvMsg(m)
		c.done(d, err)
		return err
	}
	return c.receiveFirst(m)
}

// receiveFirst is RecvMsg before the first message, or the end of the stream, was received.
func (c *clientStream) receiveFirst(m any) error {
	askedAt := c.call.Age()
	goal := firstMessage
	if c.committed {
		goal = responseHeaders
	}
	chosen, races := c.enter(goal)
	switch {
	case races && goal == firstMessage:
		if replies, ok := attempt.NewReply(m); ok {
			return c.raceInto(replies, askedAt, m)
		}
		c.call.NotReplayable()
		chosen = c.choose(&c.primary)
	case races:
		chosen = c.decide(askedAt, nil)
		c.headersCame(askedAt, chosen.header)
	case chosen == nil:
		chosen = c.await()
	}
	c.types.remember(c.method, m)
	err := c.receive(chosen, m)
	c.endWith(chosen, askedAt, err)
	if chosen.ended == nil { // otherwise receive returns chosen.ended
		c.forward.Store(chosen)
	}
	c.done(chosen, err)
	return err
}

// raceInto runs a race for the first message and receives it into m. replies makes messages of the same type as m.
func (c *clientStream) raceInto(replies attempt.Reply, askedAt time.Duration, m any) error {
	c.replies = replies
	was := replies.Content()
	into := m
	if c.plan.Detached {
		into = replies.Make()
	}
	winner := c.decide(askedAt, into)
	switch {
	case winner == &c.primary && !c.plan.Detached:
	case winner.err == nil:
		replies.Take(winner.into)
		winner.into = nil
	case c.plan.Detached:
	default: // the primary lost, but may have received into m
		replies.Restore(was)
	}
	c.types.remember(c.method, m)
	c.forward.Store(winner)
	c.done(winner, winner.err)
	return winner.err
}

func (c *clientStream) Header() (metadata.MD, error) {
	if d := c.forward.Load(); d != nil {
		return c.headerOf(d)
	}
	askedAt := c.call.Age()
	goal := responseHeaders
	replies, waits := c.types.reply(c.method, c.callOptions)
	if waits && !c.committed {
		goal = firstMessage
	}
	chosen, races := c.enter(goal)
	switch {
	case races && goal == responseHeaders:
		chosen = c.decide(askedAt, nil)
		c.headersCame(askedAt, chosen.header)
		c.done(chosen, chosen.err)
		c.done(chosen, chosen.ended)
		return chosen.header, chosen.err
	case races:
		c.replies, c.keeps = replies, true
		chosen = c.decide(askedAt, replies.Make())
		c.done(chosen, chosen.ended)
	case chosen == nil:
		chosen = c.headerDuringRace(askedAt)
	}
	header, err := c.headerOf(chosen)
	if c.streamer == nil && goal == responseHeaders { // it would have decided the race
		c.headersCame(askedAt, header)
	}
	return header, err
}

// headerOf is Header of the chosen attempt.
func (c *clientStream) headerOf(m *streamAttempt) (metadata.MD, error) {
	header, err := m.Header()
	c.done(m, err)
	return header, err
}

func (c *clientStream) SendMsg(m any) error {
	if c.inspects {
		c.inspect(m)
	}
	chosen := c.chosen.Load()
	if chosen == nil {
		err := c.primary.SendMsg(m)
		if err == nil {
			c.request.sent(m)
		}
		if err == nil || err == io.EOF { // EOF: RecvMsg returns why the stream ended
			return err
		}
		// The error ends the primary, and with it the stream, unless a hedge has won.
		if chosen = c.commit(); chosen == &c.primary {
			c.done(chosen, err)
			return err
		}
	}
	err := chosen.SendMsg(m)
	if err != io.EOF {
		c.done(chosen, err)
	}
	return err
}

func (c *clientStream) CloseSend() error {
	if chosen := c.chosen.Load(); chosen != nil {
		return chosen.CloseSend()
	}
	err := c.primary.CloseSend()
	if err == nil {
		c.request.close()
	}
	return err
}

// Trailer is the chosen attempt's. It is nil while no attempt is chosen: the stream has not ended then.
func (c *clientStream) Trailer() metadata.MD {
	if chosen := c.chosen.Load(); chosen != nil {
		return chosen.Trailer()
	}
	return nil
}

// receive is RecvMsg of the chosen attempt.
func (c *clientStream) receive(m *streamAttempt, into any) error {
	switch {
	case m.ended != nil:
		return m.ended
	case m.held:
		held := m.into
		m.into, m.held = nil, false
		return c.handOver(held, into)
	}
	return m.RecvMsg(into)
}

// done frees the context of m, the chosen attempt, if err is not nil: an error returned to the caller ends the stream.
func (c *clientStream) done(m *streamAttempt, err error) {
	if err == nil {
		return
	}
	if m.cancel != nil {
		m.cancel(err)
	}
	if ctx := c.context.Load(); ctx != nil {
		ctx.cancel(err)
	}
}
