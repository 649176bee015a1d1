package stream

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
)

// phase is the state of a clientStream:
//
//	opening ──► idle ──► racing ─────┐
//	   │        ▲ │└───► settling ───┤
//	   ▼        │ └──────────────────┴──► settled
//	aborted ────┘
//
// The method call that leaves idle also settles the stream. Other method calls that need the chosen
// attempt wait for that, without a lock.
type phase uint8

const (
	opening  phase = iota // the primary is being opened
	aborted               // the primary has ended while it was being opened
	idle                  // neither RecvMsg nor Header waits for an answer
	racing                // RecvMsg or Header runs a contest
	settling              // the primary is about to be chosen without a contest, for example at its end
	settled               // an attempt is chosen
)

// clientStream is the [grpc.ClientStream] that the caller gets. An unhedged one is settled from the
// beginning.
type clientStream struct {
	call    call.Call
	opener  opener
	primary streamAttempt
	ctx     race.Context // the primary's

	heard    atomic.Bool // the call has ended, and RecvMsg goes straight to the chosen attempt
	unhedged bool
	dryRun   bool  // the stream is unhedged only because of hedge.WithDryRun
	inspects bool  // the function of WithClass is due: see call.Call.Inspects
	requests uint8 // messages sent, 2 for more; used by SendMsg only

	call.Wait // its lock guards the fields of this block, and changes of chosen

	phase     phase
	single    *singleRequest // of a bidirectional method; nil otherwise
	contest   *contest       // at most one, until nothing uses it; constant once chosen is set
	onSettled chan struct{}  // closed when the stream is settled; nil unless a method call waits for that

	// kept is the request for hedges; nil before SendMsg, after the choice, or if not replayable. A
	// dry run keeps the request until the first message.
	kept atomic.Pointer[attempt.Kept]

	chosen  atomic.Pointer[streamAttempt] // nil until the stream is settled
	context atomic.Pointer[callContext]   // nil unless Context was called while chosen was nil
}

// open opens the primary. An error ends the call.
func (c *clientStream) open(opts []grpc.CallOption) error {
	if c.unhedged {
		return c.openUnhedged(opts)
	}
	c.ctx.Context, c.primary.cancel = context.WithCancelCause(c.call.Context)
	c.call.RecordPicks(nil, nil)
	err := c.primary.open(&c.ctx, grpc.OnFinish(c.primaryFinished))
	// A hedge may still succeed: RecvMsg then returns the error.
	mayBeSaved := err != nil && c.call.CallsForHedge(err) && c.call.Context.Err() == nil
	if err != nil && !mayBeSaved {
		c.primary.cancel(nil)
		c.call.End(call.Completion{Err: err})
		c.primary.results.Deliver(c.opener.cc == nil)
		return err
	}
	if mayBeSaved {
		c.primary.ClientStream, c.primary.recvErr = failedStream{&c.ctx, err}, err
	}
	c.Lock()
	finished := c.phase == aborted
	c.phase = idle
	c.Unlock()
	switch {
	case mayBeSaved: // without RecvMsg, the call ends with its context
		context.AfterFunc(c.ctx.Context, c.primaryEnded)
	case finished:
		c.primaryEnded()
	}
	return nil
}

// openUnhedged opens a stream that is not hedged.
func (c *clientStream) openUnhedged(opts []grpc.CallOption) (err error) {
	c.ctx.Context, c.primary.cancel = c.call.Context, func(error) {}
	if c.primary.ClientStream, err = c.opener.open(&c.ctx, &c.call.Leg, opts); err != nil {
		c.call.End(call.Completion{Err: err})
		return err
	}
	c.chosen.Store(&c.primary)
	return nil
}

// primaryFinished is the OnFinish of the primary: gRPC's stream has ended with err.
func (c *clientStream) primaryFinished(err error) {
	if err != nil {
		c.freeIfClosed(&c.primary, err)
		// The primary is not chosen yet: RecvMsg may send a hedge. Without RecvMsg, the call ends with
		// its context.
		if context.Cause(c.ctx.Context) != rpc.ErrLost && c.call.CallsForHedge(err) {
			context.AfterFunc(c.ctx.Context, c.primaryEnded)
			return
		}
	}
	c.primaryEnded()
}

func (c *clientStream) SendMsg(m any) error {
	if c.ForRequest && c.requests == 0 {
		c.call.BeginWithRequest(c.restart)
	}
	second := c.sends(m)
	if c.dryRun && !second {
		c.kept.Store(c.opener.options.Keep(m))
	}
	chosen := c.chosen.Load()
	if second && chosen == nil && c.single != nil {
		c.Lock()
		c.single.second = true
		c.Unlock()
		chosen = c.commit()
	}
	if chosen == nil {
		err := c.primaryStream().SendMsg(m)
		if err == nil || err == io.EOF { // EOF: RecvMsg returns the reason, and may send a hedge
			// Copy it now: once a hedge is due, the caller may have reused m for its next stream.
			c.keep(m)
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

// restart is [race.Race.Restart] of the contest. Without one, no race has begun, or the headers
// have decided it. The lock must be held.
func (c *clientStream) restart(now time.Time) bool {
	return c.contest == nil || c.contest.race.Restart(now)
}

// sends counts a message that the caller sends, lets the call inspect the first one, and reports
// whether it is a later one.
func (c *clientStream) sends(m any) (second bool) {
	switch c.requests {
	case 0:
		if c.requests = 1; c.inspects {
			c.call.Inspect(m)
		}
		return false
	case 1:
		c.requests = 2
		c.call.SecondRequest()
	}
	return true
}

// keep keeps the request for hedges, unless the stream is settled.
func (c *clientStream) keep(m any) {
	c.kept.Store(c.opener.options.Keep(m))
	if c.chosen.Load() != nil {
		c.kept.Swap(nil).Free()
	}
}

// primaryStream returns the stream of the primary or, if a hedge was chosen, of that hedge: see
// choose.
func (c *clientStream) primaryStream() grpc.ClientStream {
	c.Lock()
	st := c.primary.ClientStream
	c.Unlock()
	return st
}

func (c *clientStream) CloseSend() error {
	if chosen := c.chosen.Load(); chosen != nil {
		return chosen.CloseSend()
	}
	if c.single != nil {
		c.Lock()
		hedges := c.single.hedges
		c.single.hedges, c.single.closed = nil, true // hedges close their sides by themselves from here on
		c.Unlock()
		for _, h := range hedges {
			h.CloseSend()
		}
	}
	return c.primaryStream().CloseSend()
}

func (c *clientStream) RecvMsg(m any) error {
	if c.heard.Load() {
		chosen := c.chosen.Load()
		err := chosen.ClientStream.RecvMsg(m)
		c.done(chosen, err)
		return err
	}
	return c.receiveFirst(m)
}

// receiveFirst is RecvMsg up to the first message, or the end of the stream.
func (c *clientStream) receiveFirst(m any) error {
	askedAt := c.call.Age()
	forHeaders := c.call.HeadersDecide()
	var replies attempt.Reply
	races := true
	if !forHeaders {
		replies, races = c.opener.options.Reply(m)
	}
	chosen, contest := c.enter(forHeaders, askedAt, races)
	switch {
	case contest != nil && !races:
		c.call.NotReplayable()
		chosen = c.choose(&c.primary, nil)
	case contest != nil && !forHeaders:
		contest.replies = replies
		chosen = contest.run(m)
		c.heard.Store(true)
		c.done(chosen, chosen.recvErr)
		return chosen.recvErr
	case contest != nil:
		chosen = contest.run(nil)
		c.call.NoteHeaders(askedAt, chosen.header != nil)
	case chosen == nil:
		chosen = c.await()
	}
	// If another call runs the contest, a second request or an error of SendMsg may have chosen the
	// primary, which the contest still uses.
	if k := c.contest; k != nil && k.returned != nil {
		<-k.returned
	}
	err := chosen.receive(m)
	if c.dryRun { // count a hedge that would have been due, and that could not have been sent
		if kept := c.kept.Swap(nil); !races || kept == nil && c.call.Late() {
			c.call.NotReplayable()
		} else {
			kept.Free()
		}
	}
	c.call.First(askedAt, err, chosen.Trailer)
	if chosen.recvErr == nil { // otherwise receive returns chosen.recvErr
		c.heard.Store(true)
	}
	c.done(chosen, err)
	return err
}

func (c *clientStream) Header() (metadata.MD, error) {
	if c.heard.Load() {
		return c.headerOf(c.chosen.Load())
	}
	askedAt := c.call.Age()
	chosen, contest := c.enter(!c.ForMessage, askedAt, true)
	switch {
	case contest != nil && !c.ForMessage:
		chosen = contest.run(nil)
		c.call.NoteHeaders(askedAt, chosen.header != nil)
		c.done(chosen, chosen.headerErr)
		c.done(chosen, chosen.recvErr)
		return chosen.header, chosen.headerErr
	case contest != nil:
		chosen = contest.run(nil)
		c.done(chosen, chosen.recvErr)
	case chosen == nil:
		chosen = c.headerDuringContest(askedAt)
	}
	header, err := c.headerOf(chosen)
	if c.unhedged {
		c.call.NoteHeaders(askedAt, header != nil)
	}
	return header, err
}

func (c *clientStream) headerOf(m *streamAttempt) (metadata.MD, error) {
	header, err := m.Header()
	c.done(m, err)
	return header, err
}

// headerDuringContest is Header while another call runs the contest. It returns the chosen attempt.
func (c *clientStream) headerDuringContest(askedAt time.Duration) *streamAttempt {
	c.Lock()
	awaitsMessage, primary := c.phase == racing && !c.call.AnswersLater, c.primary.ClientStream
	c.Unlock()
	if !c.ForMessage && awaitsMessage {
		// Header must not wait for the first message. A primary with headers wins. A primary
		// without headers has ended or lost, and the race decides.
		if header, err := primary.Header(); err == nil && header != nil {
			c.call.NoteHeaders(askedAt, true)
			return c.commit()
		}
	}
	return c.await()
}

// contest is the race of a stream's attempts. The RecvMsg or Header that began it runs it.
type contest struct {
	stream    *clientStream
	race      race.Race
	replies   attempt.Reply // makes the hedges' messages; zero unless RecvMsg races for the first message
	untouched bool          // the race has ended, and had no hedge that could still use it

	// returned is closed when the race has returned, which may be after the choice. It is nil unless
	// another method call uses the race. The stream's lock guards it.
	returned chan struct{}
}

// contests are memory for contests: see choose.
var contests = sync.Pool{New: func() any { return new(contest) }}

// enter returns the chosen attempt, if there is one. Otherwise it returns the contest to the first
// method call that waits, which must run it or, if races is false, choose the primary. Later method
// calls get nil for both, and must await the choice. forHeaders is the goal of the contest:
// response headers or the end of a stream without headers, instead of the first message or the end
// of the stream.
func (c *clientStream) enter(forHeaders bool, askedAt time.Duration, races bool) (*streamAttempt, *contest) {
	if chosen := c.chosen.Load(); chosen != nil && !c.inspects {
		return chosen, nil
	}
	c.Lock()
	defer c.Unlock()
	c.Began = true // also of a stream that is settled
	if c.phase != idle {
		return c.chosen.Load(), nil
	}
	k := contests.Get().(*contest)
	k.stream, c.contest, c.call.AskedAt, c.call.AnswersLater = c, k, askedAt, forHeaders
	if c.phase = settling; races {
		c.phase = racing
	}
	return nil, k
}

// run runs the race, chooses the winner and returns it. If the goal is the first message, it is
// received into the given message; nil if the caller's message is not known yet.
func (k *contest) run(into any) *streamAttempt {
	c, was := k.stream, k.replies.Content()
	winner := &c.primary
	winner.into = into
	defer func() { c.choose(winner, k) }() // also if an attempt panics
	c.call.BeginRace(c.call.Context, winner.cancel, &k.race, winner)
	result := k.race.Decide()
	if k.untouched = result.Untouched; result.Winner != nil {
		winner = &result.Winner.(*streamHedge).streamAttempt
	}
	k.conclude(winner, into, was)
	return winner
}

// conclude takes the winner of the race. was is the content of into before the race. It is apart
// from run to keep the stack of a waiting caller small.
func (k *contest) conclude(winner *streamAttempt, into, was any) {
	c := k.stream
	if winner != &c.primary {
		c.primary.cancel(rpc.ErrLost)
	}
	if winner != &c.primary || into != nil { // the primary lost, or the message is the caller's
		c.primary.into = nil
	}
	switch {
	case into == nil, winner == &c.primary:
	case winner.recvErr == nil:
		k.replies.Take(winner.into)
		winner.into = nil
	default: // the primary lost, but may have received into it
		k.replies.Restore(was)
	}
	k.replies = attempt.Reply{} // the stream may stay open for long
}

// choose makes m the chosen attempt, unless there is one, and returns the chosen attempt. k is the
// contest that has ended with m; nil for none. If m has ended, choose first fills the variables of
// the call's options.
func (c *clientStream) choose(m *streamAttempt, k *contest) *streamAttempt {
	c.Lock()
	switch {
	case k == nil:
	case k.returned != nil:
		close(k.returned)
	case k.untouched: // most contests: another stream may use the memory
		*k, c.contest = contest{}, nil
		contests.Put(k)
	}
	if chosen := c.chosen.Load(); chosen != nil {
		c.Unlock()
		return chosen
	}
	c.phase = settled
	finish := m.results.Choose(false)
	c.chosen.Store(m)
	if m != &c.primary { // the primary's stream would stay in memory until the hedge's ends
		c.primary.ClientStream, c.primary.results = m.ClientStream, nil
	}
	c.kept.Swap(nil).Free() // after the store, see keep; no hedge is being prepared
	if c.onSettled != nil {
		close(c.onSettled)
	}
	c.Unlock()
	finish()
	return m
}

// primaryEnded chooses the primary if neither RecvMsg nor Header waits.
func (c *clientStream) primaryEnded() {
	c.Lock()
	was := c.phase
	switch was {
	case opening:
		c.phase = aborted
	case idle:
		c.phase = settling
	}
	c.Unlock()
	if was == idle {
		c.choose(&c.primary, nil)
	}
}

// await waits until an attempt is chosen, and returns it.
func (c *clientStream) await() *streamAttempt {
	c.Lock()
	if c.onSettled == nil && c.phase != settled {
		c.onSettled = make(chan struct{})
	}
	wait := c.onSettled
	c.Unlock()
	if wait != nil {
		<-wait
	}
	return c.chosen.Load()
}

// commit makes the primary win, if it still can: if no hedge has won, and the primary has not
// failed. It waits for the choice and returns the chosen attempt.
func (c *clientStream) commit() *streamAttempt {
	c.Lock()
	was := c.phase
	switch was {
	case idle:
		c.phase, c.Began = settling, true
	case racing:
		if c.contest.returned == nil {
			c.contest.returned = make(chan struct{})
		}
	}
	c.Unlock()
	if was != idle && (was != racing || !c.contest.race.Commit(c.call.FillOutcome)) {
		c.dropHedges()
		return c.await()
	}
	return c.choose(&c.primary, nil)
}

// Trailer is the chosen attempt's. It is nil before the choice: the stream has not ended.
func (c *clientStream) Trailer() metadata.MD {
	if chosen := c.chosen.Load(); chosen != nil {
		return chosen.Trailer()
	}
	return nil
}

// done frees the contexts of m and of the call if err is not nil: an error that the caller gets
// ends the stream.
func (c *clientStream) done(m *streamAttempt, err error) {
	if err != nil {
		c.free(m, err)
		m.results.Ended(m.ClientStream, c.call.Context)
	}
}

func (c *clientStream) free(m *streamAttempt, err error) {
	m.cancel(err)
	if ctx := c.context.Load(); ctx != nil {
		ctx.cancel(err)
	}
}

// freeIfClosed frees the context of m after its gRPC stream ended with err on a closed connection,
// and the call's unless another attempt may still win or has won. m may be opening the stream at
// the same time.
func (c *clientStream) freeIfClosed(m *streamAttempt, err error) {
	cc := m.cc()
	if err == nil || cc == nil || cc.GetState() != connectivity.Shutdown {
		return
	}
	m.cancel(err)
	c.Lock()
	only := m == c.chosen.Load() || m == &c.primary && (c.phase < racing || c.phase == settling)
	c.Unlock()
	if only {
		c.free(m, err)
	}
}

// callContext is the context of a stream on which Context was called before the choice. It ends
// with the stream, with the caller's context, or at the primary's deadline, which a service config
// may set. It has the values of the chosen attempt, and before the choice the primary's.
type callContext struct {
	context.Context
	cancel context.CancelCauseFunc
	stream *clientStream
}

func (ctx *callContext) Value(key any) any {
	// Package context looks up the enclosing cancellable context by a key of its own. The answer
	// must be the embedded context, which ends this one, and not an attempt's.
	if v := ctx.Context.Value(key); v == any(ctx.Context) {
		return v
	}
	if chosen := ctx.stream.chosen.Load(); chosen != nil {
		return chosen.Context().Value(key)
	}
	return ctx.stream.primaryStream().Context().Value(key)
}

// Context is the chosen attempt's, or before the choice a callContext, which outlives losers.
func (c *clientStream) Context() context.Context {
	if ctx := c.context.Load(); ctx != nil {
		return ctx
	}
	if chosen := c.chosen.Load(); chosen != nil {
		return chosen.Context()
	}
	own, bound, stop := &callContext{stream: c}, c.call.Context, func() {}
	if deadline, limited := c.primaryStream().Context().Deadline(); limited {
		bound, stop = context.WithDeadline(bound, deadline)
	}
	var cancel context.CancelCauseFunc
	own.Context, cancel = context.WithCancelCause(bound)
	own.cancel = func(err error) { cancel(err); stop() }
	// The lock orders this with the end of the stream: done looks for this context after a choice
	// under the lock.
	c.Lock()
	ctx, chosen := c.context.Load(), c.chosen.Load()
	if ctx == nil && chosen == nil {
		ctx = own
		c.context.Store(ctx)
	}
	c.Unlock()
	if ctx != own {
		own.cancel(nil)
	}
	if ctx == nil {
		return chosen.Context()
	}
	return ctx
}
