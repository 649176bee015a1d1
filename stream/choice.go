package stream

import (
	"time"
)

// enter returns the chosen attempt, or nil if there is none yet. In that case, if a contest is returned, the caller must run
// it, or choose. Otherwise another call does so.
func (c *clientStream) enter(g goal, askedAt time.Duration) (*streamAttempt, *contest) {
	if chosen := c.chosen.Load(); chosen != nil && !c.inspects {
		return chosen, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	begun := c.begun
	c.begun = true // from now on the request's class is what it is, for a stream that is decided too
	if chosen := c.chosen.Load(); chosen != nil || begun {
		return chosen, nil
	}
	c.contest = contest{Call: &c.call, stream: c, goal: g, askedAt: askedAt}
	c.racing = true
	return nil, &c.contest
}

// choose makes m the chosen attempt, unless there is one already, and returns the chosen attempt.
func (c *clientStream) choose(m *streamAttempt) *streamAttempt {
	c.mu.Lock()
	if chosen := c.chosen.Load(); chosen != nil {
		c.mu.Unlock()
		return chosen
	}
	finish := c.chooseLocked(m)
	c.mu.Unlock()
	finish()
	return m
}

// choosePrimaryIfIdle chooses the primary, which has ended while neither RecvMsg nor Header was waiting, so that no contest is
// needed. If a contest has begun, it does nothing.
func (c *clientStream) choosePrimaryIfIdle() {
	c.mu.Lock()
	c.finished = true
	if c.begun || !c.opened || c.chosen.Load() != nil {
		c.mu.Unlock()
		return
	}
	finish := c.chooseLocked(&c.primary)
	c.mu.Unlock()
	finish()
}

// chooseLocked makes m the chosen attempt. Before anybody sees that, the variables of its options are filled if it has ended. The
// lock must be held; finish is called without it.
func (c *clientStream) chooseLocked(m *streamAttempt) (finish func()) {
	c.racing = false
	finish = m.results.Choose(false)
	c.chosen.Store(m)
	c.copied.Store(nil)
	if c.decided != nil {
		close(c.decided)
	}
	return finish
}

// settled returns a channel that is closed once an attempt is chosen.
func (c *clientStream) settled() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decided == nil {
		c.decided = make(chan struct{})
		if c.chosen.Load() != nil {
			close(c.decided)
		}
	}
	return c.decided
}

func (c *clientStream) await() *streamAttempt {
	<-c.settled()
	return c.chosen.Load()
}

// commit chooses the primary, unless a hedge has won or the primary has failed in a race that goes on. It returns the chosen
// attempt, and waits for it if need be.
func (c *clientStream) commit() *streamAttempt {
	c.mu.Lock()
	begun := c.begun
	if c.chosen.Load() == nil {
		c.begun = true // no contest may begin any more
	}
	racing := c.racing
	c.mu.Unlock()
	if begun && (!racing || !c.contest.race.Commit()) {
		return c.await()
	}
	return c.choose(&c.primary)
}

// headerDuringContest is Header while another call runs the contest. It returns the chosen attempt.
func (c *clientStream) headerDuringContest(askedAt time.Duration) *streamAttempt {
	c.mu.Lock()
	awaitsMessage := c.racing && c.contest.goal == firstMessage
	c.mu.Unlock()
	if !c.opener.waits && awaitsMessage {
		// Header must not wait for the first message. If the primary has headers, it wins. If it has none, it has ended or
		// lost, and the race decides.
		if header, err := c.primary.Header(); err == nil && header != nil {
			c.headersCame(askedAt, header)
			return c.commit()
		}
	}
	return c.await()
}
