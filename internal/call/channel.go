package call

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
)

// Conn is the connection that a call uses. *grpc.ClientConn implements it.
type Conn interface {
	GetState() connectivity.State
}

// ConnOf returns the target and the connection of cc. Both are empty for a nil cc, as in a test
// that passes its own invoker.
func ConnOf(cc *grpc.ClientConn) (target string, conn Conn) {
	if cc != nil {
		target, conn = cc.Target(), cc // a nil cc would be a conn that is not nil
	}
	return target, conn
}

// Channels are the connections that hedges use in place of their call's own.
type Channels struct {
	list []Channel
	Of   func(n int) Destination // of hedge n: see Call.GoElsewhere
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
	c.Of = func(n int) Destination {
		to := c.at(n)
		return Destination{to.target, to}
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

// Invoke makes a hedge of a unary call.
func (c *Channel) Invoke(
	ctx context.Context, r *registry.Registry, method string, req, reply any, opts []grpc.CallOption,
) error {
	mark := NewMark(ctx, r, nil, method)
	mark.away = true
	defer mark.Over()
	return c.ClientConnInterface.Invoke(mark, method, req, reply, opts...)
}

// NewStream opens a hedge of a stream, under mark.
func (c *Channel) NewStream(
	ctx context.Context, mark *Mark, r *registry.Registry, desc *grpc.StreamDesc, method string, opts []grpc.CallOption,
) (grpc.ClientStream, error) {
	mark.Set(ctx, r, nil, method)
	mark.away = true
	defer mark.Over()
	return c.ClientConnInterface.NewStream(mark, desc, method, opts...)
}

// Mark is the context of an attempt while the attempt is being made: it tells an interceptor of the
// same scheduler, installed a second time on the connection or on one to a hedge's destination, that the
// call is hedged already.
type Mark struct {
	context.Context
	registry *registry.Registry
	conn     Conn
	away     bool // the connection leads to a hedge's destination, which sends the hedge as it is; conn is not set
	method   string
	over     atomic.Bool // a later call under this context is a call of its own
}

type markKey struct{ registry *registry.Registry }

// slab has memory for several marks, which saves allocations. Marks are not reused: an interceptor
// may keep a context.
type slab struct {
	marks [8]Mark
	used  int
}

var slabs = sync.Pool{New: func() any { return new(slab) }}

// NewMark returns the context of a unary attempt that is about to be made. A stream needs a Mark of
// its own: while it is open, it would keep the contexts of the other calls in the slab.
func NewMark(ctx context.Context, r *registry.Registry, conn Conn, method string) *Mark {
	s := slabs.Get().(*slab)
	m := &s.marks[s.used]
	if s.used++; s.used < len(s.marks) {
		slabs.Put(s)
	}
	m.Set(ctx, r, conn, method)
	return m
}

// Set makes m, which is zero, the context of an attempt that is about to be made.
func (m *Mark) Set(ctx context.Context, r *registry.Registry, conn Conn, method string) {
	m.Context, m.registry, m.conn, m.method = ctx, r, conn, method
}

// Over ends the mark: the attempt has been made.
func (m *Mark) Over() { m.over.Store(true) }

func (m *Mark) Value(key any) any {
	if k, ok := key.(markKey); ok && k.registry == m.registry {
		return m
	}
	return m.Context.Value(key)
}

// IsAttempt reports whether a call is an attempt of the same scheduler, on the same connection or on one
// to a hedge's destination, and of the same method.
func IsAttempt(ctx context.Context, r *registry.Registry, target, method string, conn Conn) bool {
	m, ok := ctx.Value(markKey{r}).(*Mark)
	if !ok || !m.away && m.conn != conn || m.method != method || m.over.Load() || !r.Made() {
		return false
	}
	if !m.away && !r.Nested.Swap(true) {
		s := r.Method(target, method, time.Now()).Settings()
		settings.Emit(s.Traces, settings.Notice{Level: slog.LevelWarn, Message: "hedging installed twice",
			Target: target})
	}
	return true
}
