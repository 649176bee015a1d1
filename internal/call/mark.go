package call

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
)

// Mark is the context of an attempt while the attempt is being made: it tells an interceptor of the
// same scheduler, installed a second time on the connection or on that of a hedge's destination, that
// the call is hedged already.
type Mark struct {
	context.Context
	registry *registry.Registry
	conn     Conn
	away     bool // the connection is that of a hedge's destination, and conn is not set
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

// NewMark returns the context of an attempt that is about to be made.
func NewMark(ctx context.Context, r *registry.Registry, conn Conn, method string) *Mark {
	s := slabs.Get().(*slab)
	m := &s.marks[s.used]
	if s.used++; s.used < len(s.marks) {
		slabs.Put(s)
	}
	m.Context, m.registry, m.conn, m.method = ctx, r, conn, method
	return m
}

// Over ends the mark: the attempt has been made.
func (m *Mark) Over() { m.over.Store(true) }

func (m *Mark) Value(key any) any {
	if k, ok := key.(markKey); ok && k.registry == m.registry {
		return m
	}
	return m.Context.Value(key)
}

// IsAttempt reports whether a call is an attempt of the same scheduler, on the same connection or on
// that of a hedge's destination, and of the same method.
func IsAttempt(ctx context.Context, r *registry.Registry, target, method string, conn Conn) bool {
	m, ok := ctx.Value(markKey{r}).(*Mark)
	if !ok || !m.away && m.conn != conn || m.method != method || m.over.Load() || !r.Made() {
		return false
	}
	if !m.away && !r.Nested.Swap(true) {
		s := r.Method(target, method, time.Now()).Settings()
		settings.Emit(s.Traces, settings.InstalledTwice{Target: target})
	}
	return true
}
