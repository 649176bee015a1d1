package call

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
)

// Conn is the connection that a call uses. *grpc.ClientConn implements it.
type Conn interface {
	GetState() connectivity.State
}

// Channels are the connections that hedges use in place of their call's own.
type Channels struct {
	list []Channel
	Of   func(n int) (target string, conn Conn) // see Call.GoElsewhere
}

// Channel is one of the connections.
type Channel struct {
	grpc.ClientConnInterface
	CC     *grpc.ClientConn // nil for a channel that is not gRPC's own
	target string
}

// GetState returns READY for a channel that does not know its state.
func (c *Channel) GetState() connectivity.State {
	if known, ok := c.ClientConnInterface.(Conn); ok {
		return known.GetState()
	}
	return connectivity.Ready
}

// ChannelsOf returns the channels for connections; nil if there are none. It ignores nil
// connections.
func ChannelsOf(conns []grpc.ClientConnInterface) *Channels {
	c := &Channels{}
	for i, conn := range conns {
		cc, own := conn.(*grpc.ClientConn)
		if conn == nil || own && cc == nil {
			continue
		}
		to := Channel{ClientConnInterface: conn, CC: cc, target: fmt.Sprintf("(hedge destination %d)", i+1)}
		if named, ok := conn.(interface{ Target() string }); ok {
			to.target = cmp.Or(named.Target(), to.target)
		}
		c.list = append(c.list, to)
	}
	if len(c.list) == 0 {
		return nil
	}
	c.Of = func(n int) (string, Conn) {
		to := c.at(n)
		return to.target, to
	}
	return c
}

// at returns the channel of hedge n. The channels take turns. A channel that is closed or fails to
// connect passes its turn to the next one: otherwise one destination that is down would hold back
// every hedge.
func (c *Channels) at(n int) *Channel {
	turn := (n - 1) % len(c.list)
	for i := range c.list {
		next := &c.list[(turn+i)%len(c.list)]
		if usable(next.GetState(), true) {
			return next
		}
	}
	return &c.list[turn]
}

// isAttempt reports whether a call is an attempt of the same scheduler, on the same connection or on one
// to a hedge's destination, and of the same method. within is the call's [race.Of].
func isAttempt(within *race.Context, r *registry.Registry, method string, cc *grpc.ClientConn) bool {
	attempt, away := within.Makes(r, cc, method)
	if !attempt || !r.Made() {
		return false
	}
	if !away && !r.Nested.Swap(true) {
		target, _ := ConnOf(cc)
		s := r.Method(target, method, time.Now()).Settings()
		settings.Emit(s.Traces, settings.Notice{Level: slog.LevelWarn, Message: "hedging installed twice",
			Target: target})
	}
	return true
}
