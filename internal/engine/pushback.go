package engine

import (
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/wire"
)

// Heeds reports whether the call's failures are to be told to Failed, with their trailers, even if none of its
// hedges has been due: for a throttle, or because a failure sends the next hedge.
func (c *Call) Heeds() bool { return c.heeds }

// Failed takes note of an attempt that has failed with err, while the call goes on: of the throttle's token, and of
// a pushback in the trailer, which may be nil. If more, the next hedge is due that long from now instead of when it
// was, and worth waiting for even if no attempt is in flight: gRPC's definition has every non-fatal failure send the
// next hedge.
//
// Where the caller gave up or the deadline passed nobody has failed.
func (c *Call) Failed(err error, trailer metadata.MD) (due time.Duration, more bool) {
	if c.method == nil || c.ctx.Err() != nil {
		return 0, false
	}
	wait, pushed := wire.Pushback(trailer)
	if t := c.method.target.throttle; t != nil && (!c.final().has(err) || wait < 0) {
		t.failure()
	}
	age := c.Age()
	if pushed {
		c.method.counters.update(func(s *Stats) { s.PushedBack++ })
		c.notBefore = max(c.notBefore, age+wait)
		c.stopped = c.stopped || wait < 0
	}
	if c.policy == nil || !c.armed || c.stopped {
		return 0, false
	}
	return max(c.notBefore-age, 0), true
}

// Successive reports whether a call whose attempts have all failed ends with the last failure, as gRPC defines
// hedging, instead of the primary's.
func (c *Call) Successive() bool { return c.policy != nil }

// Succeeded counts the call's success for the throttle, once. Ended and Won say so by themselves; a binding does where it
// tells neither, because the latency of the answer says nothing.
func (c *Call) Succeeded() {
	if !c.heeds || c.credited {
		return
	}
	if t := c.method.target.throttle; t != nil {
		c.credited = true
		t.success()
	}
}
