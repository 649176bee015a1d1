package stream

import (
	"time"

	"github.com/grpchedge/hedge/internal/race"
)

// enter returns the attempt that the stream is. If that is undecided, races says that the caller is to run the race
// for the line, with decide or choose; otherwise somebody runs one.
func (c *clientStream) enter(l line) (chosen *member, races bool) {
	if chosen = c.chosen.Load(); chosen != nil && !c.classifies {
		return chosen, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	racing := c.racing
	c.racing = true // from now on the request's class is what it is, for a stream that is decided too
	if chosen = c.chosen.Load(); chosen != nil || racing {
		return chosen, false
	}
	c.line = l
	return nil, true
}

// late is the moment that the primary gets to hand over what it may already have, when its caller comes for the
// first message after a hedge was due.
const late = time.Millisecond

// decide runs the race that enter has left to the caller, which asked for it at that age, and returns the winner. The
// primary receives into the given message, if the race is for that.
func (c *clientStream) decide(asked time.Duration, into any) *member {
	c.asked, c.into, c.raced = asked, into, true
	winner := &c.primary
	defer func() { // also where a panic of an attempt unwinds the caller
		c.request.release()
		c.choose(winner)
	}()
	out := c.race.Run(c.caller, c.cancel, c.plan.StartAt(c.call.Age(), late), (*policy)(c), (*entrant)(c))
	if out.Untouched {
		c.endUntouched(out.Err)
	}
	if out.Winner != nil {
		c.cancel(race.ErrLost)
		winner = &out.Winner.(*hedged).member
	}
	if c.keeps {
		c.primary.into = into
		winner.keep()
	}
	c.into = nil
	return winner
}

// endUntouched books a race that the primary has ended with err before a hedge was due.
func (c *clientStream) endUntouched(err error) {
	if err != nil && c.heeds {
		c.call.Failed(err, c.primary.Trailer())
	}
	(*policy)(c).ended(err, c.call.Age())
}

// choose makes m the stream, unless that is decided, and returns the attempt that it is.
func (c *clientStream) choose(m *member) *member {
	c.mu.Lock()
	if chosen := c.chosen.Load(); chosen != nil {
		c.mu.Unlock()
		return chosen
	}
	c.settle(m)
	c.mu.Unlock()
	m.results.DeliverAtEnd()
	return m
}

// abandon makes the primary, whose end its caller did not wait for, the stream, unless a race is to decide.
func (c *clientStream) abandon() {
	c.mu.Lock()
	if c.racing || !c.opened || c.chosen.Load() != nil {
		c.mu.Unlock()
		return
	}
	c.settle(&c.primary)
	c.mu.Unlock()
	c.primary.results.DeliverAtEnd()
}

// settle has m chosen, with the lock held.
func (c *clientStream) settle(m *member) {
	c.chosen.Store(m)
	if c.decided != nil {
		close(c.decided)
	}
}

// await waits until an attempt is chosen, by who runs the race, and returns it.
func (c *clientStream) await() *member {
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

// commit makes the primary the stream, unless a race is over that decides otherwise or has still to, and returns the
// attempt that the stream is.
func (c *clientStream) commit() *member {
	c.mu.Lock()
	racing := c.racing
	if !racing && c.chosen.Load() == nil {
		c.racing = true // this is the end of it
	}
	c.mu.Unlock()
	if racing && !c.race.Commit() {
		return c.await()
	}
	c.request.release()
	return c.choose(&c.primary)
}

// join is Header while somebody else runs the race. It returns the attempt that the stream is, once that has headers,
// or has ended.
func (c *clientStream) join(asked time.Duration) *member {
	if c.types == nil && c.raceLine() == message {
		// It is not for Header to wait for the first message. An attempt without headers has ended, or lost: how,
		// and what the stream is then, the race tells.
		header, err := c.primary.Header()
		if header != nil && err == nil {
			c.headersCame(asked, header)
			return c.commit()
		}
	}
	return c.await()
}

func (c *clientStream) raceLine() line {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.line
}
