// Package stream hedges server-streaming gRPC calls on the time to their first message.
//
// Add [Interceptor] to a client, beside interceptor.Unary and with the same scheduler:
//
//	s, err := hedge.New(hedge.WithIdempotentOnly())
//	if err != nil {
//		return err
//	}
//	conn, err := grpc.NewClient(target, creds,
//		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)),
//		grpc.WithChainStreamInterceptor(stream.Interceptor(s)))
//
// A stream that has sent no first message by its learned delay gets a second one. Whichever delivers first is
// the stream from then on, message for message; the other is reset on the wire at once. All that the caller
// sees, messages, header, trailer and status, comes from one attempt.
package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/race"
)

// Interceptor returns a client interceptor that hedges server-streaming calls as s decides. With a nil s it hedges
// none.
//
// Attempts race until the caller has what it first waits for: the first message, or the end, of the stream where
// it calls RecvMsg first; the response headers where it calls Header first, and then no longer. A hedge is sent
// only while the caller waits so. From then on every call goes straight to the attempt that won, at no cost per
// message; a stream that stalls later is not hedged, as its messages so far cannot be taken back. A stream whose
// Context is asked for before it has received anything is not hedged either.
//
// A method with a hedgingPolicy, see [hedge.WithServiceConfig], is committed by response headers whatever its caller
// waits for, as gRPC defines it; where headers come at once, nothing of it is hedged.
//
// Client-streaming and bidirectional calls pass through and are counted.
//
// Interceptors chained after this one run once for each attempt, concurrently.
func Interceptor(s *hedge.Scheduler) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		var target string
		var conn hedge.Conn // a nil interface where cc is nil, as with a binding that brings its own streamer
		if cc != nil {
			target, conn = cc.Target(), cc
		}
		if desc.ClientStreams || !desc.ServerStreams {
			s.PassThrough(target, method)
			return streamer(ctx, desc, cc, method, opts...)
		}
		call := s.Begin(ctx, target, method, conn, opts...)
		delay, hedged := call.Delay()
		if !hedged {
			return watch(ctx, call, desc, cc, method, streamer, opts)
		}

		c := &clientStream{call: call, caller: ctx, delay: delay, desc: desc, cc: cc, method: method, streamer: streamer}
		c.heeds, c.committed, c.classifies = call.Heeds(), call.Successive(), call.Classifies()
		c.options = attempt.NewOptions(opts)
		pctx, cancel := context.WithCancelCause(ctx)
		c.cancel = cancel
		pctx = c.call.PrimaryContext(pctx, target)
		c.primary, opts = c.newMember(cancel)
		err := c.primary.open(pctx, c, opts)
		switch {
		case err == nil:
		case c.committed && !c.call.Final(err) && ctx.Err() == nil:
			c.primary.ClientStream, c.primary.ended = failed{pctx, err}, err // a hedge may do better
		default:
			cancel(nil)
			c.call.Failed(err, nil)
			c.call.Ended(err)
			c.primary.results.Deliver()
			return nil, err
		}
		return c, nil
	}
}

// watch opens a stream that is not hedged, and learns from it.
func watch(ctx context.Context, call hedge.Call, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error) {
	st, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		call.Failed(err, nil)
		call.Ended(err)
		return nil, err
	}
	if !call.Learns() && !call.Heeds() {
		return st, nil
	}
	c := &clientStream{call: call, caller: ctx, heeds: call.Heeds(), classifies: call.Classifies()}
	c.primary.ClientStream = st
	c.chosen.Store(&c.primary)
	return c, nil
}

// clientStream is one hedged call: the stream that its caller has.
type clientStream struct {
	call     hedge.Call
	caller   context.Context
	delay    time.Duration
	desc     *grpc.StreamDesc
	cc       *grpc.ClientConn
	method   string
	streamer grpc.Streamer
	options  attempt.Options

	heeds      bool // failures matter before any hedge was due
	classifies bool // the request decides when it is hedged
	committed  bool // response headers commit the stream, whatever its caller waits for

	primary member
	cancel  context.CancelCauseFunc // the primary's

	// chosen is the attempt that the stream is, once that is decided, and direct the same, once there is nothing
	// more to learn from its first message either.
	chosen, direct atomic.Pointer[member]

	sending sync.Mutex // guards what a hedge repeats
	request any
	closed  bool // the request is all that is sent

	first   sync.Mutex // held by what waits at the finish line
	race    race.Race
	line    line
	into    any // what RecvMsg receives into
	own     attempt.Reply
	asked   time.Duration // the call's age when RecvMsg was called for the first message
	raced   bool
	learned bool // the primary's time to first message is known, or a bound of it
}

// line is what the caller first waits for.
type line uint8

const (
	message line = iota // the first message, or the end of the stream
	headers             // the response headers
)

// choose makes m the stream, with first held.
func (c *clientStream) choose(m *member) {
	c.sending.Lock()
	c.request = nil
	c.chosen.Store(m)
	c.sending.Unlock()
	m.results.DeliverAtEnd()
}

func (c *clientStream) RecvMsg(m any) error {
	if d := c.direct.Load(); d != nil {
		err := d.ClientStream.RecvMsg(m)
		d.done(err)
		return err
	}
	asked := c.call.Age()
	c.first.Lock()
	defer c.first.Unlock()
	c.asked, c.line, c.into = asked, message, m
	chosen := c.chosen.Load()
	if chosen == nil && c.committed {
		c.line = headers
		chosen = c.decide()
		c.line = message
	}
	if chosen == nil {
		var ok bool
		if c.own, ok = attempt.NewReply(m); ok {
			winner := c.decide()
			c.direct.Store(winner)
			winner.done(winner.err)
			return winner.err
		}
		c.call.NotReplayable()
		c.choose(&c.primary)
		chosen = &c.primary
	}
	err := chosen.receive(m)
	if failure := outcome(err); chosen == &c.primary {
		if failure != nil && c.heeds && (!c.raced || chosen.ended == nil) { // a race has told what it saw
			c.call.Failed(failure, chosen.Trailer())
		}
		(*policy)(c).Ended(failure)
	}
	if chosen.ended == nil { // for what is known of its end the stream need not be asked
		c.direct.Store(chosen)
	}
	chosen.done(err)
	return err
}

func (c *clientStream) Header() (metadata.MD, error) {
	if chosen := c.chosen.Load(); chosen != nil {
		return chosen.headers()
	}
	c.first.Lock()
	defer c.first.Unlock()
	if chosen := c.chosen.Load(); chosen != nil { // by a RecvMsg that was first
		return chosen.headers()
	}
	c.line = headers
	winner := c.decide()
	winner.done(winner.err)
	return winner.header, winner.err
}

// late is the moment that the primary gets to hand over what it may already have, when its caller comes for the
// first message after a hedge was due.
const late = time.Millisecond

// decide races for the finish line and returns the winner, with first held.
func (c *clientStream) decide() *member {
	delay := c.delay - c.call.Age()
	if delay <= 0 {
		delay = min(late, c.delay) // no moment for a call that is to have all its attempts at once
	}
	c.raced = true
	out := c.race.Run(c.caller, c.cancel, delay, (*policy)(c), (*entrant)(c))
	winner := &c.primary
	if out.Winner != nil {
		c.cancel(race.ErrLost)
		winner = &out.Winner.(*hedged).member
		if c.line == message {
			c.own.Take(winner.into)
			winner.into = nil
		}
	}
	c.into = nil
	c.choose(winner)
	return winner
}

// classify tells the call its request, unless somebody waits for an answer to it already.
func (c *clientStream) classify(m any) {
	if !c.classifies || !c.first.TryLock() {
		return
	}
	defer c.first.Unlock()
	if c.call.Classifies() {
		c.call.Classify(m)
		if delay, ok := c.call.Delay(); ok {
			c.delay = delay
		}
	}
}

func (c *clientStream) SendMsg(m any) error {
	c.classify(m)
	if chosen := c.chosen.Load(); chosen != nil {
		return chosen.send(m)
	}
	err := c.primary.send(m)
	if err == nil {
		c.sending.Lock()
		if c.chosen.Load() == nil {
			c.request = m
		}
		c.sending.Unlock()
	}
	return err
}

func (c *clientStream) CloseSend() error {
	if chosen := c.chosen.Load(); chosen != nil {
		return chosen.CloseSend()
	}
	err := c.primary.CloseSend()
	c.sending.Lock()
	c.closed = err == nil
	c.sending.Unlock()
	return err
}

// replayable returns the request once it is complete.
func (c *clientStream) replayable() (request any, ok bool) {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.request, c.request != nil && c.closed
}

// Context is the chosen attempt's. Whoever asks before there is one, which gRPC advises against, may hold on to
// the answer; so it decides for the primary, unless a race is on.
func (c *clientStream) Context() context.Context {
	if chosen := c.chosen.Load(); chosen != nil {
		return chosen.Context()
	}
	if c.first.TryLock() {
		if c.chosen.Load() == nil {
			c.call.NotReplayable()
			c.choose(&c.primary)
		}
		c.first.Unlock()
	}
	return c.primary.Context()
}

func (c *clientStream) Trailer() metadata.MD {
	if chosen := c.chosen.Load(); chosen != nil {
		return chosen.Trailer()
	}
	return c.primary.Trailer()
}
