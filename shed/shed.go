// Package shed has a busy gRPC server turn hedges away first. A hedge is a copy of a call that is in flight
// elsewhere: to serve it may save that call some time, and to turn it away costs nothing but this chance.
//
//	bound, err := shed.New(64)
//	if err != nil {
//		return err
//	}
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(bound.Unary),
//		grpc.ChainStreamInterceptor(bound.Stream))
//
// A call that does not say that it is a further attempt is never turned away.
package shed

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/wire"
)

// Bound bounds the hedges that a server has in flight. A hedge above the bound is answered at once with
// RESOURCE_EXHAUSTED, and with a trailer, grpc-retry-pushback-ms of -1, that asks its client for no more hedges of
// the same call. Its methods may be called concurrently, and one Bound may serve any number of servers.
//
// The interceptors of this library take RESOURCE_EXHAUSTED for a non-fatal status, so that the primary goes on
// undisturbed. A client that hedges by a service config should have it among its nonFatalStatusCodes.
//
// A hedge is told by its metadata, see PreviousAttempts of package hedge. By gRPC's definition a retry looks the same.
type Bound struct {
	most     int64
	inFlight atomic.Int64
	shed     atomic.Int64
}

// New returns a bound of so many hedges in flight, 0 or more. With 0 every hedge is turned away.
func New(hedges int) (*Bound, error) {
	if hedges < 0 {
		return nil, fmt.Errorf("hedge: shed.New(%d): the number of hedges must not be negative", hedges)
	}
	return &Bound{most: int64(hedges)}, nil
}

// InFlight is the number of hedges that are being served.
func (b *Bound) InFlight() int { return int(b.inFlight.Load()) }

// Shed is the number of hedges that were turned away so far.
func (b *Bound) Shed() int64 { return b.shed.Load() }

// Unary is a [grpc.UnaryServerInterceptor]. Put it first, so that a hedge that is turned away costs least.
func (b *Bound) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if wire.PreviousAttempts(ctx) == 0 {
		return handler(ctx, req)
	}
	if !b.enter() {
		if err := grpc.SetTrailer(ctx, wire.NoMore()); err != nil {
			return nil, err
		}
		return nil, errShed
	}
	defer b.inFlight.Add(-1)
	return handler(ctx, req)
}

// Stream is a [grpc.StreamServerInterceptor]. A hedge counts until its handler returns. Put it first.
func (b *Bound) Stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if wire.PreviousAttempts(stream.Context()) == 0 {
		return handler(srv, stream)
	}
	if !b.enter() {
		stream.SetTrailer(wire.NoMore())
		return errShed
	}
	defer b.inFlight.Add(-1)
	return handler(srv, stream)
}

var errShed = status.Error(codes.ResourceExhausted, "hedge: this server is busy and turns hedges away")

// enter counts a hedge in, unless that many are there already.
func (b *Bound) enter() bool {
	if b.inFlight.Add(1) > b.most {
		b.inFlight.Add(-1)
		b.shed.Add(1)
		return false
	}
	return true
}
