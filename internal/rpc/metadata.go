// Package rpc has what gRPC defines and hedging goes by: the metadata of attempts and the pushback
// of a server, sets of status codes, service configs, and the descriptors of methods.
package rpc

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"go.uber.org/atomic"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// AttemptsHeader is the request metadata key that tells a server how many attempts of the same call were
// sent before this one. It is absent on a primary.
const AttemptsHeader = "grpc-previous-rpc-attempts"

// InFlightHeader is the request metadata key, with the value 1, of a hedge that was sent while its primary was in flight. So the
// call does not depend on it. Retries, and hedges that follow a failure, have AttemptsHeader alone.
const InFlightHeader = "hedge-primary-in-flight"

// Unnumbered returns the context under which to make a call, without the marks of a hedge that is not the call's: of a hedge that the
// caller's handler serves, as a gateway may have copied them from its incoming metadata, and of a hedge that has won, as the context
// may hold a copy of its outgoing metadata. A call made within a hedge of another call that may still lose keeps that hedge's
// number, because it is an extra copy too.
//
// It allocates nothing, unless a hedge is served or has won. To look at the outgoing metadata it would have to copy all of it, for
// every call. So a handler that copies it to a context that is no child of its own must leave the marks out.
func Unnumbered(ctx context.Context) context.Context {
	// Either header is enough: some proxies pass on none that begins with grpc-.
	in := metadata.ValueFromIncomingContext
	marked := len(in(ctx, AttemptsHeader)) > 0 || len(in(ctx, InFlightHeader)) > 0 || won.Load() && ctx.Value(wonKey{}) != nil
	if !marked || ctx.Value(hedgeKey{}) != nil {
		return ctx
	}
	return withoutNumber(ctx)
}

// Hedge is the context of a hedge. It has the marks of the hedge, and from Won on only the values of the context under which the call
// was made.
type Hedge struct {
	context.Context
	marked context.Context
	won    atomic.Bool
}

// HedgeContext returns the context of hedge n of a call that is made under ctx. primaryInFlight says whether its primary is.
func HedgeContext(ctx context.Context, n int, primaryInFlight bool) *Hedge {
	marks := []string{AttemptsHeader, strconv.Itoa(n), InFlightHeader, "1"}
	if !primaryInFlight {
		marks = marks[:2]
	}
	marked := metadata.AppendToOutgoingContext(withoutNumber(ctx), marks...) // a race around this one may have numbered it
	return &Hedge{Context: ctx, marked: context.WithValue(marked, hedgeKey{}, true)}
}

// Won says that the hedge has won: calls that are made under its context from now on are no hedges.
func (h *Hedge) Won() {
	h.won.Store(true)
	won.Store(true)
}

func (h *Hedge) Value(key any) any {
	switch {
	case !h.won.Load():
		return h.marked.Value(key)
	case key == wonKey{}:
		return h
	}
	return h.Context.Value(key)
}

type (
	hedgeKey struct{} // of a hedge that has not won
	wonKey   struct{} // of a hedge that has won
)

// won is set once a hedge has won. Until then calls do not look for such a hedge in their context, which takes time for each context
// that it was derived from.
var won atomic.Bool

// ErrLost is the [context.Cause] of a losing attempt's context.
var ErrLost = errors.New("hedge: another attempt of the call was faster")

// PreviousAttempts returns which attempt of a hedged call the handler with the context ctx serves: 0 for the primary, n for
// hedge n. It returns 0 if the metadata has no such number or an invalid one.
func PreviousAttempts(ctx context.Context) int {
	values := metadata.ValueFromIncomingContext(ctx, AttemptsHeader)
	if len(values) == 0 {
		return 0
	}
	// The client's own attempt has the last value. A proxy may have passed on an earlier value.
	n, err := strconv.Atoi(values[len(values)-1])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// IsSpare reports whether the handler with the context ctx serves a hedge whose primary was in flight when it was sent.
func IsSpare(ctx context.Context) bool {
	return PreviousAttempts(ctx) > 0 && len(metadata.ValueFromIncomingContext(ctx, InFlightHeader)) > 0
}

// ForHedge reports whether a call that is made under ctx is made on behalf of a hedge: by the handler of a server that serves one,
// or within one of this process.
func ForHedge(ctx context.Context) bool {
	return ctx.Value(hedgeKey{}) != nil || PreviousAttempts(ctx) > 0
}

func withoutNumber(ctx context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	md.Delete(AttemptsHeader)
	md.Delete(InFlightHeader)
	return metadata.NewOutgoingContext(ctx, md)
}

// PushbackTrailer is the trailer key by which a server says, with a failure, how many milliseconds to wait before the next
// attempt. A negative value means that no attempt should follow.
const PushbackTrailer = "grpc-retry-pushback-ms"

// Pushback reads the pushback in a trailer. If wait is negative, no further attempt should be sent. A value that is not an int32,
// or several values, mean the same. ok is false if the trailer has no pushback.
func Pushback(trailer metadata.MD) (wait time.Duration, ok bool) {
	values := trailer[PushbackTrailer] // gRPC gives keys in lower case
	if len(values) == 0 {
		return 0, false
	}
	ms, err := strconv.ParseInt(values[0], 10, 32)
	if err != nil || len(values) > 1 {
		ms = -1
	}
	return time.Duration(ms) * time.Millisecond, true
}

// Served reports whether a gRPC server sent the status of an attempt on cc, which had the header and the trailer given. The other
// statuses are made by gRPC itself, from an error of per-RPC credentials or from the HTTP status of a proxy, or by interceptors.
// Without cc, which is a channel that is not gRPC's own, as one within the process, a status without a content type counts as
// the server's.
func Served(cc *grpc.ClientConn, header, trailer metadata.MD) bool {
	for _, md := range []metadata.MD{header, trailer} { // without a header, the content type is in the trailer
		if types := md["content-type"]; len(types) > 0 {
			return strings.HasPrefix(types[0], "application/grpc")
		}
	}
	return cc == nil
}
