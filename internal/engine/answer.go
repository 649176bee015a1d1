package engine

import (
	"io"
	"math"

	"github.com/grpchedge/hedge/internal/race"
)

// Accepts asks the user's function whether it accepts how attempt n ended. If err is not nil, there is no reply. The function is
// not asked about failures that could not end the race, nor once the caller has gone: then Accepts returns true. Accepts may be
// called concurrently.
func (c *Call) Accepts(n int, reply any, err error) bool {
	if err != nil {
		if !(c.final().HasStatus(err) && (n == 0 || c.hedgeFinal()) && c.ctx.Err() == nil) {
			return true
		}
		reply = nil
	}
	return c.settings.Answer(c.ctx, c.method.name, reply, err)
}

// AcceptsNone is Accepts of a stream that has ended without a message.
func (c *Call) AcceptsNone() bool { return c.settings.Answer(c.ctx, c.method.name, nil, io.EOF) }

// hedgeFinal reports whether a hedge's final status may end the race.
func (c *Call) hedgeFinal() bool { return c.settings.policy != nil || c.settings.onlyReads }

// raceHedges is the most hedges that the race can have. A poor answer makes hedges due that the trigger would not send.
func (c *Call) raceHedges() int {
	if c.settings.Answer != nil && c.settings.policy == nil {
		return c.settings.MaxHedges
	}
	return c.maxHedges()
}

// onlyForPoor is the answer about a hedge that is not to be sent unless a poor answer calls for it: the hedge is held back for
// ever. If it were refused, a poor answer could not call for it any more.
func onlyForPoor() race.Event { return race.Event{Kind: race.HeldBack, Until: math.MaxInt64} }
