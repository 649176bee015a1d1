package call

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/internal/registry"
)

// Channels are the connections that hedges use in place of their call's own. A nil *Channels has
// none.
type Channels struct {
	list []Channel
	of   func(n int) Destination // saves an allocation for each call
}

// Channel is one of the connections.
type Channel struct {
	grpc.ClientConnInterface
	CC *grpc.ClientConn // nil for a channel that is not gRPC's own
	Destination
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
		to := Channel{ClientConnInterface: conn, CC: cc}
		to.Target = fmt.Sprintf("(hedge destination %d)", i+1)
		if named, ok := conn.(interface{ Target() string }); ok {
			to.Target = named.Target()
		}
		to.Conn, _ = conn.(Conn)
		c.list = append(c.list, to)
	}
	if len(c.list) == 0 {
		return nil
	}
	c.of = func(n int) Destination { return c.At(n).Destination }
	return c
}

// At returns the channel of hedge n: the channels take turns. It returns nil if there are none.
func (c *Channels) At(n int) *Channel {
	if c == nil {
		return nil
	}
	return &c.list[(n-1)%len(c.list)]
}

// UseChannels sends the hedges of a call by channels. It must be called before the race.
func (c *Call) UseChannels(to *Channels) {
	if to != nil {
		c.GoElsewhere(to.of)
	}
	if to != nil && c.Hedged() {
		c.elsewhere.channels = to
		c.toward(1, c.Start)
	}
}

// Channel returns the channel of hedge n; nil for the call's own.
func (c *Call) Channel(n int) *Channel {
	if c.elsewhere == nil {
		return nil
	}
	return c.elsewhere.channels.At(n)
}

// Invoke makes a hedge of a unary call.
func (c *Channel) Invoke(
	ctx context.Context, r *registry.Registry, method string, req, reply any, opts []grpc.CallOption,
) error {
	mark := NewMark(ctx, r, nil, method)
	mark.away = true
	defer mark.Over()
	return c.ClientConnInterface.Invoke(mark, method, req, reply, opts...)
}

// NewStream opens a hedge of a stream.
func (c *Channel) NewStream(
	ctx context.Context, r *registry.Registry, desc *grpc.StreamDesc, method string, opts []grpc.CallOption,
) (grpc.ClientStream, error) {
	mark := NewMark(ctx, r, nil, method)
	mark.away = true
	defer mark.Over()
	return c.ClientConnInterface.NewStream(mark, desc, method, opts...)
}
