package engine

import (
	"context"
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/place"
)

// PrimaryContext returns the context of the primary, on a connection with the given target. If the process has a policy of
// package balancer, the context carries the record of the backends that the call has used. Call it before the race, and only
// for a call that may be hedged.
func (c *Call) PrimaryContext(ctx context.Context, target string) context.Context {
	if c.method == nil || c.conn == nil || !place.Live() {
		return ctx
	}
	ctx, c.record = place.Primary(ctx, target, (*sameBackendCounter)(&c.method.counters))
	return ctx
}

// HedgeContext returns the context of a hedge, with the same record. It may be called from any goroutine after
// PrimaryContext has returned.
func (c *Call) HedgeContext(ctx context.Context) context.Context {
	if c.record == nil {
		return ctx
	}
	return c.record.Hedge(ctx)
}

// staysHere reports whether WithOtherBackendOnly holds back hedge n, because no backend is known that the call has not used.
func (c *Call) staysHere(n int) bool {
	if !c.settings.OtherBackendOnly || c.conn == nil {
		return false
	}
	c.method.noPolicy.Store(!c.record.HasPolicy())
	return !c.record.Spare(n)
}

// late tells the record that hedge n is due, so that the attempt before it is late. What is late comes from what was learned
// of the method: a delay that was given by an option or a hedgingPolicy says nothing about its calls.
func (c *Call) late(n int, now time.Time) {
	if c.estimate != nil {
		c.record.Late(n, now, c.delay)
	}
}

// patientDelay is the delay of the first hedge if the primary is to find out whether a silent backend answers at all. It is 0 if
// the delay is the usual one. Of the time until the call's deadline the primary gets a quarter at most.
func (c *Call) patientDelay(now time.Time) time.Duration {
	if c.estimate == nil {
		return 0
	}
	limit := time.Duration(math.MaxInt64)
	if deadline, ok := c.ctx.Deadline(); ok {
		limit = deadline.Sub(c.start) / 4
	}
	return c.record.PatientDelay(now, c.delay, limit)
}

// HedgeAnswered says that a hedge, whose context HedgeContext has returned, has answered: a stream with its first message.
func HedgeAnswered(ctx context.Context) {
	if h, ok := ctx.(*place.Hedge); ok {
		h.Answered()
	}
}
