// Package wire reads and writes the metadata of hedging: the number of an attempt and whether its primary is in flight in the
// request, and a server's pushback in the trailer. The client and package shed use it.
package wire

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
)

// AttemptsHeader is the request metadata key that tells a server how many attempts of the same call were
// sent before this one. It is absent on a primary.
const AttemptsHeader = "grpc-previous-rpc-attempts"

// InFlightHeader is the request metadata key, with the value 1, of a hedge that was sent while its primary was in flight. So the
// call does not depend on it. Retries, and hedges that follow a failure, have AttemptsHeader alone.
const InFlightHeader = "hedge-primary-in-flight"

// Unnumbered returns the context under which to make a call: ctx, without what marks an attempt as a hedge in its outgoing
// metadata. Without this, the primaries of a gateway that copies incoming metadata to its own calls would look like hedges. A
// call made within a hedge of another call keeps that hedge's number, because it is an extra copy too.
//
// Without outgoing metadata, or with metadata that holds no such number, it allocates nothing.
func Unnumbered(ctx context.Context) context.Context {
	if !numbered(ctx) || ctx.Value(hedgeKey{}) != nil {
		return ctx
	}
	return withoutNumber(ctx)
}

// HedgeContext returns the context of hedge n of a call that is made under ctx. primaryInFlight says whether its primary is.
func HedgeContext(ctx context.Context, n int, primaryInFlight bool) context.Context {
	if numbered(ctx) { // by a race around this one
		ctx = withoutNumber(ctx)
	}
	marks := []string{AttemptsHeader, strconv.Itoa(n), InFlightHeader, "1"}
	if !primaryInFlight {
		marks = marks[:2]
	}
	ctx = metadata.AppendToOutgoingContext(ctx, marks...)
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

// numbered reports whether the outgoing metadata of ctx holds a mark of an attempt. It may be one of the two: some proxies pass on no
// header that begins with grpc-.
func numbered(ctx context.Context) bool {
	if outgoingKey == nil {
		md, _ := metadata.FromOutgoingContext(ctx) // a copy, which takes several allocations
		return len(md.Get(AttemptsHeader))+len(md.Get(InFlightHeader)) > 0
	}
	return holds(ctx, outgoingKey)
}

// outgoingKey is the key under which a context holds gRPC's outgoing metadata. gRPC exports no function that reads one entry,
// and copying all metadata would double the cost of hedging for a call. So the context's value is read by reflection. The key
// is nil if findKey sees that this does not work, with another version of gRPC.
var outgoingKey = findKey()

func findKey() (key any) {
	defer func() { _ = recover() }()
	var asked keyOf
	metadata.FromOutgoingContext(&asked)
	none := context.Background()
	set := metadata.NewOutgoingContext(none, metadata.Pairs("a", "1", AttemptsHeader, "1"))
	appended := metadata.AppendToOutgoingContext(none, "a", "1", AttemptsHeader, "1")
	neither := metadata.AppendToOutgoingContext(metadata.NewOutgoingContext(none, metadata.Pairs("a", "1")), "b", "2")
	if holds(set, asked.key) && holds(appended, asked.key) && !holds(neither, asked.key) {
		key = asked.key
	}
	return key
}

// keyOf is a context that notes the key of the value that it is asked for.
type keyOf struct {
	context.Context
	key any
}

func (k *keyOf) Value(key any) any {
	k.key = key
	return nil
}

// holds reads gRPC's struct of a map and of lists of further keys and values, which a context holds under a key.
func holds(ctx context.Context, key any) bool {
	raw := reflect.ValueOf(ctx.Value(key))
	if !raw.IsValid() {
		return false
	}
	if md := raw.Field(0); md.MapIndex(attemptsHeader).IsValid() || md.MapIndex(inFlightHeader).IsValid() {
		return true
	}
	added := raw.Field(1)
	for i := range added.Len() {
		pairs := added.Index(i)
		for k := 0; k < pairs.Len(); k += 2 {
			if key := pairs.Index(k).String(); strings.EqualFold(key, AttemptsHeader) || strings.EqualFold(key, InFlightHeader) {
				return true
			}
		}
	}
	return false
}

var attemptsHeader, inFlightHeader = reflect.ValueOf(AttemptsHeader), reflect.ValueOf(InFlightHeader)

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
