package call

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/registry"
)

// PrimaryContext returns the context of the primary, on a connection with the given target. If the process has a policy of
// package balancer, the context carries the record of the backends that the call has used. Call it before the race, and only
// for a call that may be hedged.
func (c *Call) PrimaryContext(ctx context.Context, target string) context.Context {
	if c.method == nil || c.Conn == nil || !place.Live() {
		return ctx
	}
	ctx, c.Record = place.Primary(ctx, target, (*registry.SameBackendCounter)(&c.method.Counters))
	return ctx
}

// HedgeAnswered says that a hedge, whose context HedgeContext has returned, has answered: a stream with its first message.
func HedgeAnswered(ctx context.Context) {
	if h, ok := ctx.(*place.Hedge); ok {
		h.Answered()
	}
}

// HedgePeer says to whom a hedge of the call went, when it has ended. It may be called at any time, from any goroutine. An
// unknown peer has no address.
func (c *Call) HedgePeer(p *peer.Peer) {
	if conn, ok := c.Conn.(*grpc.ClientConn); ok {
		c.method.Target.HedgePeer(conn, p, c.Record)
	}
}
