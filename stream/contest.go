package stream

import (
	"sync"
	"time"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
)

// contest is the race of a stream's attempts. The RecvMsg or Header that began it runs it.
type contest struct {
	stream    *clientStream
	race      race.Race
	replies   attempt.Reply // makes the hedges' messages; zero unless RecvMsg races for the first message
	untouched bool          // the race has ended, and had no hedge that could still use it

	// returned is closed when the race has returned, which may be after the choice. It is nil unless another
	// method call uses the race. The stream's mu guards it.
	returned chan struct{}
}

// contests are memory for contests: see choose.
var contests = sync.Pool{New: func() any { return new(contest) }}

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
		c.call.HeadersCame(askedAt, chosen.header != nil)
	case chosen == nil:
		chosen = c.await()
	}
	// If another call runs the contest, a second request or an error of SendMsg may have chosen the
	// primary, which the contest still uses.
	if k := c.contest; k != nil && k.returned != nil {
		<-k.returned
	}
	err := chosen.receive(m)
	if c.dryRun {
		if kept := c.kept.Swap(nil); !races || kept == nil && c.call.Overdue() {
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

// enter returns the chosen attempt, if there is one. Otherwise it returns the contest to the first
// method call that waits, which must run it or, if races is false, choose the primary. Later method
// calls get nil for both, and must await the choice. forHeaders is the goal of the contest: response
// headers or the end of a stream without headers, instead of the first message or the end of the stream.
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

// conclude takes the winner of the race. was is the content of into before the race. It is apart from
// run to keep the stack of a waiting caller small.
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

// choose makes m the chosen attempt, unless there is one, and returns the chosen attempt. k is the contest
// that has ended with m; nil for none. If m has ended, choose first fills the variables of the call's options.
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

// headerDuringContest is Header while another call runs the contest. It returns the chosen attempt.
func (c *clientStream) headerDuringContest(askedAt time.Duration) *streamAttempt {
	c.Lock()
	awaitsMessage, primary := c.phase == racing && !c.call.AnswersLater, c.primary.ClientStream
	c.Unlock()
	if !c.ForMessage && awaitsMessage {
		// Header must not wait for the first message. A primary with headers wins. A primary
		// without headers has ended or lost, and the race decides.
		if header, err := primary.Header(); err == nil && header != nil {
			c.call.HeadersCame(askedAt, true)
			return c.commit()
		}
	}
	return c.await()
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
