package stream

import (
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/race"
)

// enter returns the chosen attempt, or nil if there is none yet. In that case, if races is true, the caller must run the
// race for the goal, with decide or choose. If races is false, another call runs it.
func (c *clientStream) enter(l goal) (chosen *streamAttempt, races bool) {
	if chosen = c.chosen.Load(); chosen != nil && !c.inspects {
		return chosen, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	racing := c.racing
	c.racing = true // from now on the request's class is what it is, for a stream that is decided too
	if chosen = c.chosen.Load(); chosen != nil || racing {
		return chosen, false
	}
	c.goal = l
	return nil, true
}

// grace is the time that the primary gets before the first hedge, if RecvMsg is called after that hedge was due. The first
// message may be there already.
const grace = time.Millisecond

// decide runs the race, after enter has returned races, and returns the winner. RecvMsg or Header was called at the age
// askedAt. If the goal is the first message, the primary receives it into the given message.
func (c *clientStream) decide(askedAt time.Duration, into any) *streamAttempt {
	c.askedAt, c.into = askedAt, into
	if c.plan.Detached {
		c.primary.into = into
	}
	winner := &c.primary
	defer func() { // also if an attempt panics
		c.request.release()
		c.choose(winner)
	}()
	out := c.race.Run(c.caller, c.cancel, c.plan.StartAt(c.call.Age(), grace), (*policy)(c), (*entrant)(c))
	if out.Untouched {
		c.endUntouched(out.Err)
	}
	if out.Winner != nil {
		if !c.plan.Detached { // then the primary may run on
			c.cancel(race.ErrLost)
		}
		winner = &out.Winner.(*hedgeAttempt).streamAttempt
	}
	if c.keeps {
		if !c.plan.Detached {
			c.primary.into = into
		}
		winner.keepForRecv()
	}
	if !c.plan.Detached {
		c.into = nil
	}
	return winner
}

// choose makes m the chosen attempt, unless there is one already, and returns the chosen attempt.
func (c *clientStream) choose(m *streamAttempt) *streamAttempt {
	c.mu.Lock()
	if chosen := c.chosen.Load(); chosen != nil {
		c.mu.Unlock()
		return chosen
	}
	c.chooseLocked(m)
	c.mu.Unlock()
	m.results.DeliverAtEnd()
	return m
}

// choosePrimaryIfNoRace chooses the primary, which has ended while neither RecvMsg nor Header was waiting. If a race has
// begun, it does nothing.
func (c *clientStream) choosePrimaryIfNoRace() {
	c.mu.Lock()
	if c.racing || !c.opened || c.chosen.Load() != nil {
		c.mu.Unlock()
		return
	}
	c.chooseLocked(&c.primary)
	c.mu.Unlock()
	c.primary.results.DeliverAtEnd()
}

// chooseLocked makes m the chosen attempt. The lock must be held.
func (c *clientStream) chooseLocked(m *streamAttempt) {
	c.chosen.Store(m)
	if c.decided != nil {
		close(c.decided)
	}
}

// await waits until another call has chosen an attempt, and returns that.
func (c *clientStream) await() *streamAttempt {
	c.mu.Lock()
	if chosen := c.chosen.Load(); chosen != nil {
		c.mu.Unlock()
		return chosen
	}
	if c.decided == nil {
		c.decided = make(chan struct{})
	}
	decided := c.decided
	c.mu.Unlock()
	<-decided
	return c.chosen.Load()
}

// commit chooses the primary, unless a hedge has won or the primary has failed in a race that goes on. It returns the chosen
// attempt, and waits for it if need be.
func (c *clientStream) commit() *streamAttempt {
	c.mu.Lock()
	racing := c.racing
	if !racing && c.chosen.Load() == nil {
		c.racing = true // no race may begin any more
	}
	c.mu.Unlock()
	if racing && !c.race.Commit() {
		return c.await()
	}
	c.request.release()
	return c.choose(&c.primary)
}

// headerDuringRace is Header while another call runs the race. It returns the chosen attempt.
func (c *clientStream) headerDuringRace(askedAt time.Duration) *streamAttempt {
	if c.types == nil && c.raceGoal() == firstMessage {
		// Header must not wait for the first message. If the primary has headers, it wins. If it has none, it has ended or
		// lost, and the race decides.
		if header := c.primaryHeader(); header != nil {
			c.headersCame(askedAt, header)
			return c.commit()
		}
	}
	return c.await()
}

// primaryHeader waits for the primary's headers. It returns nil if there are none, or if the race is decided before.
func (c *clientStream) primaryHeader() metadata.MD {
	header := func() metadata.MD {
		md, err := c.primary.Header()
		if err != nil {
			return nil
		}
		return md
	}
	if !c.plan.Detached { // a primary that has lost is cancelled
		return header()
	}
	came, decided := make(chan metadata.MD, 1), make(chan struct{})
	go func() { came <- header() }()
	go func() {
		c.await()
		close(decided)
	}()
	select {
	case md := <-came:
		return md
	case <-decided:
		return nil
	}
}

func (c *clientStream) raceGoal() goal {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.goal
}
