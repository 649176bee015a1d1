package engine

import (
	"io"
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/race"
)

// Accepts reports whether the user's function takes the end of attempt n for an answer. The reply is nil if there is none. The
// function is not asked about failures that could not end the race, nor about any once the caller has gone. Accepts may be
// called concurrently.
func (c *Call) Accepts(n int, reply any, err error) bool {
	if err != nil && !(c.final().has(err) && (n == 0 || c.hedgeFinal()) && c.ctx.Err() == nil) {
		return true
	}
	return c.settings.Answer(c.ctx, c.method.name, reply, err)
}

// AcceptsNone is Accepts of a stream that has ended without a message.
func (c *Call) AcceptsNone() bool { return c.settings.Answer(c.ctx, c.method.name, nil, io.EOF) }

// hedgeFinal reports whether a hedge's final status is an answer.
func (c *Call) hedgeFinal() bool { return c.settings.policy != nil || c.settings.onlyReads }

// raceHedges is the most hedges that the race can have. A poor answer makes hedges due that the trigger would not send.
func (c *Call) raceHedges() int {
	if c.settings.Answer != nil && c.settings.policy == nil {
		return c.settings.MaxHedges
	}
	return c.maxHedges()
}

// never is the age of a call at which a hedge is due that only a poor answer can call for.
const never time.Duration = math.MaxInt64

// onlyForPoor holds the hedge that is due back unless a poor answer comes.
func onlyForPoor() race.Event { return race.Event{Kind: race.HeldBack, Until: never} }
