// Package shed has interceptors for gRPC servers, and a handler for HTTP servers, that turn hedges
// away while the server is busy. A hedge is a copy of a call that another server may be serving
// already, so turning it away costs only the chance to save time.
//
//	bound, err := shed.New()
//	if err != nil {
//		return err
//	}
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(bound.Unary),
//		grpc.ChainStreamInterceptor(bound.Stream))
//
// Every other call is served. docs/shed.md describes the protocol, for other servers and proxies.
package shed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/runqueue"
)

// A server is busy in either of two cases.
const (
	// Goroutines wait for a processor for more than busyWait on average.
	busyWait = time.Millisecond
	// They wait for more than shortWait, and a handler returned less than handover ago. The hedge
	// waited for that handler: while all processors are in use, requests lie unread in sockets,
	// where the runtime does not see them wait.
	shortWait = 100 * time.Microsecond
	handover  = 200 * time.Microsecond
)

// Bound turns hedges away while its server is busy. It fails them with RESOURCE_EXHAUSTED and the
// trailer grpc-retry-pushback-ms: 0, on which a client that follows gRFC A6 sends the next attempt
// at once. Its methods may be called concurrently. Several servers of a process may share one
// Bound.
//
// A hedge has the metadata hedge-primary-in-flight: 1. An empty value, or 0, is no mark. Attempts
// without the mark, such as gRPC's own retries, are served and not counted: a call may depend on them.
// A client with a hedgingPolicy needs RESOURCE_EXHAUSTED in nonFatalStatusCodes.
type Bound struct {
	busy     func() bool // of WithBusy; nil without
	most     int64
	made     time.Time
	returned atomic.Int64 // when a handler returned last, in nanoseconds since made
	inFlight atomic.Int64
	shed     atomic.Int64
}

// Option is an option of [New].
type Option func(*Bound) error

// New returns a Bound. By default a server is busy while its goroutines wait for a processor for
// more than 1 ms, on average over the last 50 to 100 ms, or for more than 0.1 ms if a handler
// returned less than 0.2 ms ago. New returns an error if an option has a value out of range.
func New(opts ...Option) (*Bound, error) {
	b := &Bound{most: math.MaxInt64, made: time.Now()}
	b.returned.Store(-int64(handover)) // none has
	for n, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("hedge: shed.New: option %d is nil", n+1)
		}
		if err := o(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// WithBusy adds a sign that the server is busy: busy returns true while, say, all database
// connections are in use. It is called for each hedge, concurrently, and must be quick. A nil
// function is an error.
func WithBusy(busy func() bool) Option {
	return func(b *Bound) error {
		if busy == nil {
			return errors.New("hedge: shed.WithBusy(nil): must be a function")
		}
		b.busy = busy
		return nil
	}
}

// WithMaxHedges makes the server busy while n hedges are in flight. With 0 every hedge is turned
// away. A negative number is an error.
func WithMaxHedges(n int) Option {
	return func(b *Bound) error {
		if n < 0 {
			return fmt.Errorf("hedge: shed.WithMaxHedges(%d): must be 0 or more", n)
		}
		b.most = int64(n)
		return nil
	}
}

// InFlight returns the number of hedges in flight, without streams that have sent their first
// message.
func (b *Bound) InFlight() int { return int(b.inFlight.Load()) }

// Shed returns the number of hedges turned away.
func (b *Bound) Shed() int64 { return b.shed.Load() }

// Unary is a [grpc.UnaryServerInterceptor]. Put it first in the chain, so that turning a hedge away
// costs least. Unary does not call the handler if the call, hedge or not, is already canceled: it
// may have waited for a processor.
func (b *Bound) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	spare := rpc.PrimaryInFlight(ctx)
	if spare && !b.enter() {
		if err := grpc.SetTrailer(ctx, turnedAway); err != nil {
			return nil, err
		}
		return nil, errShed
	}
	defer b.handlerReturned()
	if spare {
		defer b.inFlight.Add(-1)
	}
	return handler(ctx, req)
}

// Stream is a [grpc.StreamServerInterceptor]. Put it first in the chain. A hedge counts until its
// first message is sent or its handler returns. Stream does not call the handler of a canceled call.
func (b *Bound) Stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := stream.Context()
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	spare := rpc.PrimaryInFlight(ctx)
	if spare && !b.enter() {
		stream.SetTrailer(turnedAway)
		return errShed
	}
	defer b.handlerReturned()
	if spare {
		h := &hedge{ServerStream: stream, leave: sync.OnceFunc(func() { b.inFlight.Add(-1) })}
		defer h.leave()
		stream = h
	}
	return handler(srv, stream)
}

// hedge is the stream of a hedge that is in flight.
type hedge struct {
	grpc.ServerStream
	leave func()
}

func (h *hedge) SendMsg(m any) error {
	defer h.leave()
	return h.ServerStream.SendMsg(m)
}

var (
	errShed    = status.Error(codes.ResourceExhausted, "hedge: this server is busy and turns hedges away")
	turnedAway = metadata.Pairs(rpc.PushbackTrailer, "0")
)

// enter counts a hedge in flight, or returns false if the server is busy. A hedge that is turned
// away never counts as in flight.
func (b *Bound) enter() bool {
	if !b.isBusy() && (b.busy == nil || !b.busy()) {
		for n := b.inFlight.Load(); n < b.most; n = b.inFlight.Load() {
			if b.inFlight.CompareAndSwap(n, n+1) {
				return true
			}
		}
	}
	b.shed.Add(1)
	return false
}

func (b *Bound) handlerReturned() { b.returned.Store(int64(time.Since(b.made))) }

// isBusy reports whether the server is short of processor time.
func (b *Bound) isBusy() bool {
	wait := runqueue.Wait()
	return wait > busyWait || wait > shortWait && int64(time.Since(b.made))-b.returned.Load() < int64(handover)
}
