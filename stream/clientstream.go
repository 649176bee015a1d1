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

// clientStream is one call: the stream that its caller has.
//
// Whoever first waits for something, RecvMsg or Header, runs the race; whoever else waits, waits until it is decided.
// No lock is held while anything waits.
type clientStream struct {
	call        engine.Call
	caller      context.Context
	plan        race.Plan
	desc        *grpc.StreamDesc
	cc          *grpc.ClientConn
	method      string
	streamer    grpc.Streamer
	options     attempt.Options
	types       *messageTypes     // nil where Header does not wait for the first message
	callOptions []grpc.CallOption // the caller's

	heeds      bool // failures matter before any hedge was due
	committed  bool // response headers commit the stream, whatever its caller waits for
	classifies bool // the request decides when it is hedged
	classified bool // the request has been asked for its class; belongs to SendMsg

	primary member
	cancel  context.CancelCauseFunc // the primary's

	// chosen is the attempt that the stream is, once that is decided, and direct the same, once there is nothing
	// more to learn from its first message either.
	chosen, direct atomic.Pointer[member]
	context        atomic.Pointer[callContext] // nil unless it was asked for while nothing was chosen
	request        request

	mu      sync.Mutex // guards what follows, and that one attempt is chosen
	opened  bool
	racing  bool          // somebody waits for something, or the stream is being decided
	line    line          // what the race is for; written before it runs
	decided chan struct{} // closed when an attempt is chosen; made only for a caller that waits for that
	headers waiting       // for the headers that decided the call

	race race.Race

	// What follows belongs to who runs the race, and then to RecvMsg.
	own     attempt.Reply
	into    any           // what the primary receives into
	keeps   bool          // the first message is to be kept for RecvMsg, because Header raced for it
	asked   time.Duration // the call's age when the race was asked for
	raced   bool
	learned bool     // the primary's time to first message is known, or a bound of it
	pending *pending // a hedge that won by its headers
}

// line is what a race is for.
type line uint8

const (
	message line = iota // the first message, or the end of the stream
	headers             // the response headers, or the end of a stream without
)

func (c *clientStream) RecvMsg(m any) error {
	if d := c.direct.Load(); d != nil {
		err := d.ClientStream.RecvMsg(m)
		c.done(d, err)
		return err
	}
	return c.receiveFirst(m)
}

// receiveFirst is RecvMsg until the first message, or the end of the stream, is there.
func (c *clientStream) receiveFirst(m any) error {
	asked := c.call.Age()
	line := message
	if c.committed {
		line = headers
	}
	chosen, races := c.enter(line)
	switch {
	case races && line == message:
		if own, ok := attempt.NewReply(m); ok {
			return c.raceInto(own, asked, m)
		}
		c.call.NotReplayable()
		chosen = c.choose(&c.primary)
	case races:
		chosen = c.decide(asked, nil)
		c.headersCame(asked, chosen.header)
	case chosen == nil:
		chosen = c.await()
	}
	c.types.saw(c.method, m)
	err := c.receive(chosen, m)
	c.note(chosen, asked, err)
	if chosen.ended == nil { // for what is known of its end the stream need not be asked
		c.direct.Store(chosen)
	}
	c.done(chosen, err)
	return err
}

// raceInto races for the first message, which m, that own is of, is to hold.
func (c *clientStream) raceInto(own attempt.Reply, asked time.Duration, m any) error {
	c.own = own
	was := own.Content()
	winner := c.decide(asked, m)
	switch {
	case winner == &c.primary:
	case winner.err == nil:
		own.Take(winner.into)
		winner.into = nil
	case c.primary.err == nil: // it received a message all the same, which is nobody's
		own.Restore(was)
	}
	if c.early(asked) {
		c.call.EarlyHeaders()
	}
	c.types.saw(c.method, m)
	c.direct.Store(winner)
	c.done(winner, winner.err)
	return winner.err
}

func (c *clientStream) Header() (metadata.MD, error) {
	if d := c.direct.Load(); d != nil {
		return c.headerOf(d)
	}
	asked := c.call.Age()
	line := headers
	own, waits := c.types.reply(c.method, c.callOptions)
	if waits && !c.committed {
		line = message
	}
	chosen, races := c.enter(line)
	switch {
	case races && line == headers:
		chosen = c.decide(asked, nil)
		c.headersCame(asked, chosen.header)
		c.done(chosen, chosen.err)
		c.done(chosen, chosen.ended)
		return chosen.header, chosen.err
	case races:
		c.own, c.keeps = own, true
		chosen = c.decide(asked, own.Make())
		c.done(chosen, chosen.ended)
	case chosen == nil:
		chosen = c.join(asked)
	}
	header, err := c.headerOf(chosen)
	if c.streamer == nil && line == headers { // it would have decided the race
		c.headersCame(asked, header)
	}
	return header, err
}

// headerOf is Header of the attempt that the stream is.
func (c *clientStream) headerOf(m *member) (metadata.MD, error) {
	header, err := m.Header()
	c.done(m, err)
	return header, err
}

func (c *clientStream) SendMsg(m any) error {
	if c.classifies {
		c.classify(m)
	}
	chosen := c.chosen.Load()
	if chosen == nil {
		err := c.primary.SendMsg(m)
		if err == nil {
			c.request.sent(m)
		}
		if err == nil || err == io.EOF { // EOF: of which RecvMsg tells more
			return err
		}
		// That ends the primary, and so the stream, unless a hedge has won.
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

// Trailer is the chosen attempt's. There is none before the end of the stream, which chooses one.
func (c *clientStream) Trailer() metadata.MD {
	if chosen := c.chosen.Load(); chosen != nil {
		return chosen.Trailer()
	}
	return nil
}

// receive is RecvMsg of the attempt that the stream is.
func (c *clientStream) receive(m *member, into any) error {
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

// done frees the context of m, which the stream is, once err, which the caller is told, says that it is over.
func (c *clientStream) done(m *member, err error) {
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
