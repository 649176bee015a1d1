package hedge

import (
	"context"

	"github.com/grpchedge/hedge/internal/place"
)

// WithOtherBackendOnly sends a hedge only where it can meet a backend that no attempt of its call has used. The
// policy hedge_other_backend of package balancer must be installed on the connection: it knows that another one is
// ready, and picks it. A hedge that is not sent for this reason counts as NoOtherBackend, and is considered again
// later while its call lasts.
//
// Where all attempts go out at once, with a delay of 0, hedges wait until the primary has its backend.
//
// Without the policy nothing is known of backends, so that no hedge is sent at all, and [TargetStats].NoBackendPolicy says
// so. A service config that a resolver brings replaces the one of grpc.WithDefaultServiceConfig, and the policy named in
// it, unless grpc.WithDisableServiceConfig is given.
// Calls without a connection of gRPC's, as [Do] makes them, have no backends and are hedged as without the option.
func WithOtherBackendOnly() Option {
	return func(c *config) error {
		c.otherBackendOnly = true
		return nil
	}
}

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
	if !c.scheduler.config.otherBackendOnly || c.conn == nil {
		return false
	}
	c.method.noPolicy.Store(!c.record.HasPolicy())
	return !c.record.Spare(n)
}

// SingleBackend reports whether a hedge cannot go elsewhere, because the target has a single backend ready, as
// with one address or with pick_first. It is false where nothing is known of backends.
func (t TargetStats) SingleBackend() bool { return t.Backends == 1 }
