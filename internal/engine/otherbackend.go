package engine

import (
	"context"

	"github.com/grpchedge/hedge/internal/place"
)

// PrimaryContext returns the context to make the primary attempt under, on a connection with the given target: ctx,
// and in it, if need be, what tells the policy of package balancer where the call's attempts have been. It is
// called before the race, and only for a call that may be hedged.
func (c *Call) PrimaryContext(ctx context.Context, target string) context.Context {
	if c.method == nil || c.conn == nil || !place.Live() {
		return ctx
	}
	ctx, c.record = place.Primary(ctx, target, (*metAgain)(&c.method.counters))
	return ctx
}

// HedgeContext returns the context to make a hedge under, as PrimaryContext does for the primary. It may be called
// from any goroutine once PrimaryContext has returned.
func (c *Call) HedgeContext(ctx context.Context) context.Context {
	if c.record == nil {
		return ctx
	}
	return c.record.Hedge(ctx)
}

// staysHere reports whether hedge n is to be held back because it would, or might, meet a backend again.
func (c *Call) staysHere(n int) bool {
	if !c.engine.config.OtherBackendOnly || c.conn == nil {
		return false
	}
	c.method.noPolicy.Store(!c.record.HasPolicy())
	return !c.record.Spare(n)
}
