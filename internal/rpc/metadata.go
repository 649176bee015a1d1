// Package rpc has what gRPC defines and hedging goes by: the metadata of attempts and the pushback
// of a server, sets of status codes, service configs, and the descriptors of methods.
package rpc

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"
)

// AttemptsHeader is the request metadata key that tells a server how many attempts of the same call were
// sent before this one. It is absent on a primary.
const AttemptsHeader = "grpc-previous-rpc-attempts"

// InFlightHeader is the request metadata key, with the value 1, of a hedge that was sent while its primary was in flight. So the
// call does not depend on it. Retries, and hedges that follow a failure, have AttemptsHeader alone.
const InFlightHeader = "hedge-primary-in-flight"

// Unnumbered returns the context under which to make a call. If the handler of a hedge makes the call, the outgoing metadata loses
// the marks of a hedge: a gateway may have copied them from its incoming metadata, and its primaries would look like hedges. A call
// made within a hedge of another call keeps that hedge's number, because it is an extra copy too.
//
// It goes by the incoming metadata and allocates nothing, unless a hedge is served. To look at the outgoing metadata it would have to
// copy all of it, for every call. So a handler that copies it to a context that is no child of its own must leave the marks out.
func Unnumbered(ctx context.Context) context.Context {
	// Either header is enough: some proxies pass on none that begins with grpc-.
	in := metadata.ValueFromIncomingContext
	if len(in(ctx, AttemptsHeader)) == 0 && len(in(ctx, InFlightHeader)) == 0 || ctx.Value(hedgeKey{}) != nil {
		return ctx
	}
	return withoutNumber(ctx)
}

// HedgeContext returns the context of hedge n of a call that is made under ctx. primaryInFlight says whether its primary is.
func HedgeContext(ctx context.Context, n int, primaryInFlight bool) context.Context {
	marks := []string{AttemptsHeader, strconv.Itoa(n), InFlightHeader, "1"}
	if !primaryInFlight {
		marks = marks[:2]
	}
	ctx = metadata.AppendToOutgoingContext(withoutNumber(ctx), marks...) // a race around this one may have numbered it
	return context.WithValue(ctx, hedgeKey{}, true)
}

type hedgeKey struct{}

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

// NoMore returns the trailer by which a server asks for no further attempt.
func NoMore() metadata.MD { return metadata.Pairs(PushbackTrailer, "-1") }
