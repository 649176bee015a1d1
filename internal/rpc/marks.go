package rpc

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"
)

// The request metadata keys of hedges.
const (
	// AttemptsHeader has the number of previous attempts of the call. It is absent on a primary.
	AttemptsHeader = "grpc-previous-rpc-attempts"
	// InFlightHeader is 1 for a hedge that was sent while its primary was in flight, so that the
	// call does not depend on it.
	InFlightHeader = "hedge-primary-in-flight"
)

// Marks returns a context with only the outgoing metadata of ctx, marked for hedge n of a call.
// primaryInFlight reports whether the call's primary is in flight.
func Marks(ctx context.Context, n int, primaryInFlight bool) context.Context {
	md := metadata.Join(unmarked(ctx), metadata.Pairs(AttemptsHeader, strconv.Itoa(n)))
	if primaryInFlight {
		md.Set(InFlightHeader, "1")
	}
	return metadata.NewOutgoingContext(context.Background(), md)
}

// Unmarked returns a context with the outgoing metadata of ctx, without the marks of hedges.
func Unmarked(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, unmarked(ctx))
}

func unmarked(ctx context.Context) metadata.MD {
	md, _ := metadata.FromOutgoingContext(ctx)
	md.Delete(AttemptsHeader)
	md.Delete(InFlightHeader)
	return md
}

// PreviousAttempts is hedge.PreviousAttempts.
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

// PrimaryInFlight reports whether the handler with the context ctx serves a hedge that was sent while its
// primary was in flight.
func PrimaryInFlight(ctx context.Context) bool {
	return PreviousAttempts(ctx) > 0 && isSet(metadata.ValueFromIncomingContext(ctx, InFlightHeader))
}

// isSet reports whether a mark has a number above 0. A proxy may give each request an empty mark, or a 0.
func isSet(mark []string) bool {
	return slices.ContainsFunc(mark, func(value string) bool {
		n, err := strconv.Atoi(value)
		return err == nil && n > 0
	})
}

// The headers of HTTP hedges, and of an answer that turns one away. HTTP's form of InFlightHeader has
// the same name.
const (
	httpAttempt  = "Hedge-Attempt" // the number of the hedge, 1 for the first
	httpInFlight = "Hedge-Primary-In-Flight"
	// TurnedAwayHeader is 1 in a response of 400 or more: this server has no room for a hedge, and
	// another one may have.
	TurnedAwayHeader = "Hedge-Turned-Away"
)

// MarkHTTP replaces the marks in the headers of an HTTP request by the marks of the hedge of ctx.
func MarkHTTP(h http.Header, ctx context.Context) {
	if IsHTTPHedge(h) { // otherwise AttemptsHeader is of a retry by gRPC
		h.Del(AttemptsHeader)
	}
	delete(h, httpAttempt)
	delete(h, httpInFlight)
	md, _ := metadata.FromOutgoingContext(ctx)
	if n := md[AttemptsHeader]; len(n) > 0 {
		h.Set(httpAttempt, n[0])
		if strings.HasPrefix(h.Get("Content-Type"), grpcType) {
			h.Set(AttemptsHeader, n[0])
		}
	}
	if len(md[InFlightHeader]) > 0 {
		h.Set(httpInFlight, "1")
	}
}

// HasHTTPMarks reports whether the headers have a mark, with any value.
func HasHTTPMarks(h http.Header) bool { return len(h[httpAttempt]) > 0 || len(h[httpInFlight]) > 0 }

// IsHTTPHedge reports whether the headers belong to a hedge.
func IsHTTPHedge(h http.Header) bool { return isSet(h[httpAttempt]) || isSet(h[httpInFlight]) }

// PrimaryInFlightHTTP is PrimaryInFlight for an HTTP request.
func PrimaryInFlightHTTP(h http.Header) bool { return isSet(h[httpAttempt]) && isSet(h[httpInFlight]) }

// ServesHTTPHedge returns a context for calls on behalf of an HTTP hedge: MadeForHedge reports true.
func ServesHTTPHedge(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return metadata.NewIncomingContext(ctx, metadata.Join(md, metadata.Pairs(AttemptsHeader, "1")))
}
