package stream

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

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

// contest is the race of a stream's attempts: its [race.Policy], mostly by the call, and its
// [race.Entrant]. The RecvMsg or Header that began it runs it.
type contest struct {
	*call.Call
	stream  *clientStream
	race    race.Race
	askedAt time.Duration // the call's age when RecvMsg or Header was called
	replies attempt.Reply // makes the hedges' messages; zero unless RecvMsg races for the first message
	goal    goal
	running sync.WaitGroup // until the race has returned, which may be after the choice
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
	c.contest = contest{Call: &c.call, stream: c, goal: g, askedAt: askedAt}
	if c.phase = settling; races {
		c.phase = racing
		c.contest.running.Add(1)
	}
	return nil, &c.contest
}

// decide runs the race, chooses the winner and returns it. If the goal is the first message, the
// primary receives it into the given message; nil if the caller's message is not known yet.
func (k *contest) decide(into any) *streamAttempt {
	c := k.stream
	c.primary.goal, c.primary.into = k.goal, into
	winner := &c.primary
	defer func() { // also if an attempt panics
		c.choose(winner)
		k.running.Done()
	}()
	out := k.race.Run(c.caller, c.primary.cancel, c.call.Plan().StartAt(k.askedAt, call.Grace), k, k)
	if err := out.Err; out.Untouched && (err != nil || k.goal == firstMessage) { // else the first message is to come
		e := call.Ending{Err: err, Age: k.Age(), AskedAt: k.askedAt}
		if err != nil {
			e.Trailer = c.primary.Trailer()
		}
		c.end(e)
	}
	if out.Winner != nil {
		c.primary.cancel(rpc.ErrLost)
		winner = out.Winner.(*streamAttempt)
	}
	return winner
}

func (k *contest) Primary() error { return k.stream.primary.awaitGoal() }

func (k *contest) Replayable() bool { return k.stream.kept.Load() != nil }

func (k *contest) Hedge(_ int, cancel context.CancelCauseFunc) race.Attempt {
	h := &streamAttempt{stream: k.stream, goal: k.goal, cancel: cancel, request: k.stream.kept.Load().Message()}
	if h.request == nil {
		return nil
	}
	h.into = k.replies.Make()
	return h
}

func (k *contest) Accepts(err error) (ok, open bool) { return k.stream.primary.Accepts(err) }

func (k *contest) Trailer() metadata.MD { return k.stream.primary.Trailer() }

// Book ends the call by the report of its race. If headers decided it, the first message is to
// come.
func (k *contest) Book(r *race.Report) {
	c := k.stream
	if k.goal == responseHeaders && r.Err == nil && !r.Panicked {
		k.BookHeaders(r)
		return
	}
	c.end(call.Ending{Race: r, Err: r.Err, Age: r.DeliveredAt, AskedAt: k.askedAt})
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
	c.kept.Swap(nil).Free() // no hedge is being prepared
	if c.decided != nil {
		close(c.decided)
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
	if c.decided == nil && c.phase != settled {
		c.decided = make(chan struct{})
	}
	decided := c.decided
	c.mu.Unlock()
	if decided != nil {
		<-decided
	}
	return c.chosen.Load()
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

// singleRequest is the state of a stream of a bidirectional method: its messages and hedges.
type singleRequest struct {
	hedges []*streamAttempt // that have sent the request
	closed bool             // no more messages follow
	second bool             // the caller sends a second message: a hedge without an answer cannot win any more
}

// sent notes that a hedge has sent the request, and closes its side if the caller has. It returns
// an error if the hedge must not win.
func (c *clientStream) sent(h *streamAttempt) error {
	if c.single == nil {
		return h.CloseSend()
	}
	c.mu.Lock()
	closed, second := c.single.closed, c.single.second
	c.single.hedges = append(c.single.hedges, h)
	c.mu.Unlock()
	switch {
	case second:
		return rpc.ErrLost
	case closed:
		return h.CloseSend()
	}
	return nil
}

// answered notes that a hedge has an answer. Like sent, it returns an error if the hedge must not
// win.
func (c *clientStream) answered(h *streamAttempt) error {
	if c.single == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.single.second {
		return rpc.ErrLost
	}
	h.answered = true
	return nil
}

// dropHedges cancels the hedges without an answer if the caller sends a second message although the
// primary cannot win any more.
func (c *clientStream) dropHedges() {
	if c.single == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.single.hedges {
		if c.single.second && !h.answered {
			h.cancel(rpc.ErrLost)
		}
	}
}

// headerDuringContest is Header while another call runs the contest. It returns the chosen attempt.
func (c *clientStream) headerDuringContest(askedAt time.Duration) *streamAttempt {
	c.mu.Lock()
	awaitsMessage := c.phase == racing && c.contest.goal == firstMessage
	c.mu.Unlock()
	if !c.waits && awaitsMessage {
		// Header must not wait for the first message. A primary with headers wins. A primary
		// without headers has ended or lost, and the race decides.
		if header, err := c.primary.Header(); err == nil && header != nil {
			c.headersCame(askedAt, header)
			return c.commit()
		}
	}
	return c.await()
}
