package stream

import (
	"sync"
	"time"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
)

type goal uint8

const (
	firstMessage    goal = iota // or the end of the stream
	responseHeaders             // or the end of a stream without headers
)

// contest is the race of a stream's attempts, and its [race.Policy], mostly by the call. The RecvMsg or
// Header that began it runs it.
type contest struct {
	*call.Call
	stream  *clientStream
	race    race.Race
	askedAt time.Duration  // the call's age when RecvMsg or Header was called
	replies attempt.Reply  // makes the hedges' messages; zero unless RecvMsg races for the first message
	running sync.WaitGroup // until the race has returned, which may be after the choice
}

// receiveFirst is RecvMsg up to the first message, or the end of the stream.
func (c *clientStream) receiveFirst(m any) error {
	askedAt := c.age()
	goal := responseHeaders
	var replies attempt.Reply
	races := true
	if !c.call.HeadersDecide() {
		goal = firstMessage
		replies, races = c.opener.options.Reply(m)
	}
	chosen, contest := c.enter(goal, askedAt, races)
	switch {
	case contest != nil && !races:
		c.call.NotReplayable()
		chosen = c.choose(&c.primary)
	case contest != nil && goal == firstMessage:
		contest.replies = replies
		chosen = contest.run(m)
		c.heard.Store(true)
		c.done(chosen, chosen.recvErr)
		return chosen.recvErr
	case contest != nil:
		chosen = contest.run(nil)
		c.headersCame(askedAt, chosen.header)
	case chosen == nil:
		chosen = c.await()
	}
	// If another call runs the contest, a second request or an error of SendMsg may have chosen the
	// primary, which the contest still uses.
	c.contest.running.Wait()
	err := chosen.receive(m)
	if c.dryRun {
		if kept := c.kept.Swap(nil); !races || kept == nil && c.age() > c.call.Delay {
			c.call.NotReplayable()
		} else {
			kept.Free()
		}
	}
	c.endWith(chosen, askedAt, err)
	if chosen.recvErr == nil { // otherwise receive returns chosen.recvErr
		c.heard.Store(true)
	}
	c.done(chosen, err)
	return err
}

// enter returns the chosen attempt, if there is one. Otherwise it returns the contest to the first
// method call that waits, which must run it or, if races is false, choose the primary. Later method
// calls get nil for both, and must await the choice.
func (c *clientStream) enter(g goal, askedAt time.Duration, races bool) (*streamAttempt, *contest) {
	if chosen := c.chosen.Load(); chosen != nil && !c.inspects {
		return chosen, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = true // fixes the request's class, also of a stream that is settled
	if c.phase != idle {
		return c.chosen.Load(), nil
	}
	k := &c.contest
	k.Call, k.stream, k.askedAt, c.primary.goal = &c.call, c, askedAt, g
	if c.phase = settling; races {
		c.phase = racing
		k.running.Add(1)
	}
	return nil, k
}

// run runs the race, chooses the winner and returns it. If the goal is the first message, it is
// received into the given message; nil if the caller's message is not known yet.
func (k *contest) run(into any) *streamAttempt {
	was := k.begin(into)
	winner := &k.stream.primary
	defer k.running.Done()
	defer func() { k.stream.choose(winner) }() // also if an attempt panics
	out := k.race.Decide()
	if out.Winner != nil {
		winner = out.Winner.(*streamAttempt)
	}
	k.conclude(out, winner, into, was)
	return winner
}

// begin prepares the race, and returns the content of the caller's message. Like conclude, it is
// apart from run to keep the stack of a waiting caller small.
//
//go:noinline
func (k *contest) begin(into any) (was any) {
	c := k.stream
	c.primary.into = into
	was = k.replies.Content()
	k.race.Begin(c.call.Context, c.primary.cancel, k.plan(), k, &c.primary)
	return was
}

// conclude takes the outcome of the race. was is the content of into before the race.
func (k *contest) conclude(out race.Result, winner *streamAttempt, into, was any) {
	c := k.stream
	// If the headers of the primary ended an untouched race, the first message ends the call later.
	if err := out.Err; out.Untouched && (err != nil || c.primary.goal == firstMessage) {
		c.end(call.Completion{Err: err, Age: c.age(), AskedAt: k.askedAt, Trailer: out.Trailer})
	}
	if out.Winner != nil {
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

// plan returns the plan of the race. Before the request was sent, no hedge is due: SendMsg restarts
// the race.
func (k *contest) plan() race.Plan {
	c := k.stream
	if !c.bidi {
		return c.call.Plan().StartAt(k.askedAt, call.Grace)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.call.Plan().StartAt(k.askedAt, call.Grace)
	if c.unsent {
		p.Due, p.Alarm = race.Longest, nil
	}
	return p
}

// Ended ends the call with the state of its race. If headers decided it, the first message is still
// to come.
func (k *contest) Ended(r *race.State) {
	c := k.stream
	if c.primary.goal == responseHeaders && r.Err == nil && !r.Panicked {
		k.EndedByHeaders(r)
		return
	}
	c.end(call.Completion{Race: r, Err: r.Err, Age: r.DeliveredAt, AskedAt: k.askedAt})
}

// choose makes m the chosen attempt, unless there is one, and returns the chosen attempt. If m has
// ended, choose first fills the variables of the call's options.
func (c *clientStream) choose(m *streamAttempt) *streamAttempt {
	c.mu.Lock()
	if chosen := c.chosen.Load(); chosen != nil {
		c.mu.Unlock()
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
	c.mu.Unlock()
	finish()
	return m
}

// primaryEnded chooses the primary if neither RecvMsg nor Header waits.
func (c *clientStream) primaryEnded() {
	c.mu.Lock()
	was := c.phase
	switch was {
	case opening:
		c.phase = aborted
	case idle:
		c.phase = settling
	}
	c.mu.Unlock()
	if was == idle {
		c.choose(&c.primary)
	}
}

// await waits until an attempt is chosen, and returns it.
func (c *clientStream) await() *streamAttempt {
	c.mu.Lock()
	if c.onSettled == nil && c.phase != settled {
		c.onSettled = make(chan struct{})
	}
	wait := c.onSettled
	c.mu.Unlock()
	if wait != nil {
		<-wait
	}
	return c.chosen.Load()
}

// headerDuringContest is Header while another call runs the contest. It returns the chosen attempt.
func (c *clientStream) headerDuringContest(askedAt time.Duration) *streamAttempt {
	c.mu.Lock()
	awaitsMessage, primary := c.phase == racing && c.primary.goal == firstMessage, c.primary.ClientStream
	c.mu.Unlock()
	if !c.waits && awaitsMessage {
		// Header must not wait for the first message. A primary with headers wins. A primary
		// without headers has ended or lost, and the race decides.
		if header, err := primary.Header(); err == nil && header != nil {
			c.headersCame(askedAt, header)
			return c.commit()
		}
	}
	return c.await()
}

// commit makes the primary win, if it still can: if no hedge has won, and the primary has not
// failed. It waits for the choice and returns the chosen attempt.
func (c *clientStream) commit() *streamAttempt {
	c.mu.Lock()
	was := c.phase
	if was == idle {
		c.phase, c.begun = settling, true
	}
	c.mu.Unlock()
	if was != idle && (was != racing || !c.contest.race.Commit(c.call.FillOutcome)) {
		c.dropHedges()
		return c.await()
	}
	return c.choose(&c.primary)
}
