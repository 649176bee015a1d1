package rpc

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc/metadata"
)

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
