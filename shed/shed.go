// Package shed has interceptors for a gRPC server that turn hedges away when too many are in flight. A hedge is a copy of a
// call that another server may be serving already, so turning it away costs only the chance to save time.
//
//	bound, err := shed.New(64)
//	if err != nil {
//		return err
//	}
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(bound.Unary),
//		grpc.ChainStreamInterceptor(bound.Stream))
//
// Nothing else is turned away: a call is a hedge only if its metadata says so.
package shed

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/rpc"
)

// Bound limits the hedges that a server has in flight. A hedge above the limit is answered at once with RESOURCE_EXHAUSTED, and
// with the trailer grpc-retry-pushback-ms: -1, which asks the client for no more hedges of the call. Its methods may be called
// concurrently, and several servers may share one Bound.
//
// For the interceptors of this library RESOURCE_EXHAUSTED is a non-fatal status by default, so the primary goes on. A client
// that hedges by a service config should have it among its nonFatalStatusCodes.
//
// A hedge has the metadata hedge-primary-in-flight: 1, beside grpc-previous-rpc-attempts. The interceptors of this library set
// both if the primary is in flight when the hedge is sent. Attempts without the first are served and not counted: gRPC's own retries
// and hedges that follow a failure, as they may be all that is left of their call, and hedges of other libraries.
type Bound struct {
	most     int64
	inFlight atomic.Int64
	shed     atomic.Int64
}

// New returns a Bound that allows the given number of hedges in flight, 0 or more. With 0 every hedge is turned away. A negative
// number is an error.
func New(hedges int) (*Bound, error) {
	if hedges < 0 {
		return nil, fmt.Errorf("hedge: shed.New(%d): the number of hedges must not be negative", hedges)
	}
	return &Bound{most: int64(hedges)}, nil
}

// InFlight is the number of hedges that are being served, without streams that have sent their first message.
func (b *Bound) InFlight() int { return int(b.inFlight.Load()) }

// Shed is the number of hedges that were turned away so far.
func (b *Bound) Shed() int64 { return b.shed.Load() }

// Unary is a [grpc.UnaryServerInterceptor]. Put it first, so that a hedge that is turned away costs least.
func (b *Bound) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !rpc.IsSpare(ctx) {
		return handler(ctx, req)
	}
	if !b.enter() {
		if err := grpc.SetTrailer(ctx, rpc.NoMore()); err != nil {
			return nil, err
		}
		return nil, errShed
	}
	defer b.inFlight.Add(-1)
	return handler(ctx, req)
}

// Stream is a [grpc.StreamServerInterceptor]. A hedge counts until its first message is sent, or its handler returns: from then
// on it is the call's stream, or it is cancelled. Put it first.
func (b *Bound) Stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !rpc.IsSpare(stream.Context()) {
		return handler(srv, stream)
	}
	if !b.enter() {
		stream.SetTrailer(rpc.NoMore())
		return errShed
	}
	h := &hedge{ServerStream: stream, leave: sync.OnceFunc(func() { b.inFlight.Add(-1) })}
	defer h.leave()
	return handler(srv, h)
}

// hedge is the stream of a hedge that holds a place.
type hedge struct {
	grpc.ServerStream
	leave func()
}

func (h *hedge) SendMsg(m any) error {
	defer h.leave()
	return h.ServerStream.SendMsg(m)
}

var errShed = status.Error(codes.ResourceExhausted, "hedge: this server is busy and turns hedges away")

// enter counts a hedge in, unless that many are there already. One that is turned away is not counted even for a moment.
func (b *Bound) enter() bool {
	for n := b.inFlight.Load(); n < b.most; n = b.inFlight.Load() {
		if b.inFlight.CompareAndSwap(n, n+1) {
			return true
		}
	}
	b.shed.Add(1)
	return false
}
