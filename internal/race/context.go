package race

import (
	"context"
	"time"

	"go.uber.org/atomic"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/rpc"
)

// Context is the only context of an attempt: [Of] finds it in each context that is derived from it.
// It embeds the context that ends with the attempt, so that package context needs no goroutine for
// a child. The race sets the embedded context of a hedge. The maker of a primary, or of a call that
// is not hedged, sets its own.
type Context struct {
	context.Context

	by     any // see Describe, as for the next three
	conn   *grpc.ClientConn
	method string
	away   bool

	// Made is set when the attempt has been made: a later call under this context is a call of its
	// own.
	Made atomic.Bool

	backends *place.Record // of the attempt's picks; nil for none, or place.Hidden
	picks    *place.Hedge  // of a hedge
	hedge    *loan         // of a hedge
}

type key struct{}

// Of returns the context of the attempt to which ctx belongs; nil outside an attempt.
func Of(ctx context.Context) *Context {
	c, _ := ctx.Value(key{}).(*Context)
	return c
}

func (c *Context) Value(k any) any {
	if k == (key{}) {
		return c
	}
	return c.Context.Value(k)
}

// Placed returns a context under which picks are recorded in r, and in h if they are of a hedge.
func Placed(ctx context.Context, r *place.Record, h *place.Hedge) *Context {
	return &Context{Context: ctx, backends: r, picks: h}
}

// Describe records, before an attempt is made under c, the scheduler by, the connection and the
// method of the attempt. If away is set, the attempt is a hedge on a connection to its destination,
// which sends the hedge as it is, and conn does not matter. Picks are recorded in r, which may be
// nil.
func (c *Context) Describe(by any, conn *grpc.ClientConn, method string, away bool, r *place.Record) {
	c.by, c.conn, c.method, c.away, c.backends = by, conn, method, away, r
}

// Makes reports whether a call under c, which may be nil, is an attempt that the scheduler by is
// making, because that scheduler is installed a second time: on the same connection, or on the one
// to a hedge's destination. away reports which.
func (c *Context) Makes(by any, conn *grpc.ClientConn, method string) (attempt, away bool) {
	for c != nil && c.by != by {
		c = Of(c.Context)
	}
	if c == nil || !c.away && c.conn != conn || c.method != method || c.Made.Load() {
		return false, false
	}
	return true, c.away
}

// Backends returns the record in which picks under c are recorded for a connection with the given
// target, and the picks of the hedge if c is the context of a hedge. Both are nil for a call that
// may not be hedged, and for a call of an interceptor on another connection.
func (c *Context) Backends(target string) (*place.Record, *place.Hedge) {
	if c == nil || !c.backends.IsFor(target) {
		return nil, nil
	}
	return c.backends, c.picks
}

// Hidden reports whether only the child of a policy of package balancer places calls under c: calls
// for which hedging is off, and hedges further down the tree of policies.
func (c *Context) Hidden() bool { return c != nil && c.backends == place.Hidden }

// Answered records that the attempt, a hedge, has answered. A stream answers with its first
// message.
func (c *Context) Answered() {
	if c.backends != nil {
		c.backends.HedgeAnswered(c.picks)
	}
}

// Hook makes the context of a hedge, which is being prepared, look up values in hooks before the
// caller's context.
func (c *Context) Hook(hooks context.Context) { c.hedge.hooks = hooks }

// WrapCancel has f end the context of a hedge that is being prepared. f gets the function that ends
// it.
func (c *Context) WrapCancel(f func(cause error, cancel context.CancelCauseFunc)) {
	cancel := c.hedge.cancel
	c.hedge.cancel = func(cause error) { f(cause, cancel) }
}

// Cancel ends the context of a hedge.
func (c *Context) Cancel(cause error) { c.hedge.cancel(cause) }

// withinHedge reports whether c, or a context outside c, is of a hedge that has won (if won is
// true), or of one that has not won (if won is false).
func (c *Context) withinHedge(won bool) bool {
	for ; c != nil; c = Of(c.Context) {
		if c.hedge != nil && c.hedge.won.Load() == won {
			return true
		}
	}
	return false
}

// MadeForHedge reports whether a call under ctx is made on behalf of a hedge: by the handler of a
// server that serves a hedge, or within a hedge of this process that has not won.
func MadeForHedge(ctx context.Context) bool {
	return Of(ctx).withinHedge(false) || rpc.PreviousAttempts(ctx) > 0
}

// Unmarked returns the context for a new call under ctx without the marks of another hedge, which
// may have been copied into ctx: of the hedge that the caller's handler serves, or of a hedge of
// this process that has won. c is Of(ctx). A call made within a hedge that may still lose keeps the
// marks, because it is an extra copy too. Unmarked does not read the outgoing metadata, which would
// be copied for every call.
func Unmarked(ctx context.Context, c *Context) context.Context {
	// Either mark is enough: some proxies pass on no header that begins with grpc-.
	in := metadata.ValueFromIncomingContext
	marked := len(in(ctx, rpc.AttemptsHeader)) > 0 || len(in(ctx, rpc.InFlightHeader)) > 0
	if !marked && (c == nil || !c.withinHedge(true)) || c.withinHedge(false) {
		return ctx
	}
	return rpc.Unmarked(ctx)
}

// loan is the caller's context as the parent of the context of a hedge, with the marks of the hedge
// until it wins. A loser may outlive the call, and the caller may then reuse its context. So once
// the race is over, a loser does not use the caller's context, and the call waits for uses that
// have begun. Values that the hedge has read stay available: a stats handler reports the end of an
// attempt to a value that it found at the beginning.
type loan struct {
	caller   context.Context
	x        *runner
	limited  bool // there is a deadline
	done     <-chan struct{}
	deadline time.Time
	values   map[any]any // that the hedge has read; nil after it has won; x.mu guards it
	cancel   context.CancelCauseFunc

	marks context.Context // has the outgoing metadata of a hedge that may lose: see rpc.Marks
	hooks context.Context // see Hook; nil: none
	won   atomic.Bool     // later calls under the context are not hedges
}

// hedgeContext returns the context of a hedge with the given marks.
func (x *runner) hedgeContext(marks context.Context) *Context {
	h := new(struct { // one allocation
		Context
		loan  loan
		picks place.Hedge
	})
	l := &h.loan
	l.caller, l.x, l.done, l.values = x.ctx, x, x.ctx.Done(), map[any]any{}
	l.deadline, l.limited = x.ctx.Deadline()
	l.marks = marks
	h.Context.Context, l.cancel = context.WithCancelCause(l)
	h.hedge, h.Context.picks = l, &h.picks
	return &h.Context
}

func (l *loan) Done() <-chan struct{} { return l.done }

func (l *loan) Deadline() (at time.Time, ok bool) { return l.deadline, l.limited }

func (l *loan) Err() error {
	err := context.Canceled
	l.use(func() { err = l.caller.Err() })
	return err
}

func (l *loan) Value(key any) any {
	if l.marks != nil && !l.won.Load() {
		if value := l.marks.Value(key); value != nil {
			return value
		}
	}
	if l.hooks != nil {
		if value := l.hooks.Value(key); value != nil {
			return value
		}
	}
	return l.ofCaller(key)
}

func (l *loan) ofCaller(key any) (value any) {
	asked := l.use(func() { value = l.caller.Value(key) })
	l.x.mu.Lock()
	defer l.x.mu.Unlock()
	if !asked {
		return l.values[key]
	}
	if value != nil && l.values != nil {
		l.values[key] = value
	}
	return value
}

// use calls f, and returns true, unless the hedge has lost and the race is over.
func (l *loan) use(f func()) bool {
	l.x.mu.Lock()
	over, won := l.x.over, l.won.Load()
	if !over {
		l.x.guests++
	}
	l.x.mu.Unlock()
	switch {
	case !over:
		defer l.x.leave()
		f()
	case won:
		f()
	}
	return !over || won
}
