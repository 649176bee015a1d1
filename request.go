package hedge

import (
	"context"
	"math/bits"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
)

// WithClass learns latencies, and chooses delays, for each class of a method's requests, such as a
// tenant or a length of prompt. of returns the class of a request, or "" for none; [BySize] is an
// example. Once a request of the method has a class, requests without one get the class "(other)".
// Nil, the default, means no classes.
//
// A method has at most 16 classes; further classes count as "(other)". Names are truncated to 64
// bytes. The first 16 classes keep their places. A class with too few calls uses the latencies of the
// method.
//
// of runs on the caller's goroutine, once per unary call and once for the request of a server
// stream, and its run time adds to the latency. It must be safe for concurrent use, and must not
// change the request. If it panics, the call panics. The request of [Do] is nil.
func WithClass(of func(ctx context.Context, method string, request any) string) Option {
	return option("WithClass", anywhere, nil, func(c *settings.Config) { c.Class = of })
}

// BySize is a function for [WithClass]. The class of a protobuf request is its size on the wire, in
// powers of four. Other requests have no class.
func BySize(_ context.Context, _ string, request any) string {
	m, ok := request.(proto.Message)
	if !ok {
		return ""
	}
	return sizes[min((bits.Len(uint(proto.Size(m)))+1)/2, len(sizes)-1)]
}

// sizes are the names of the classes of BySize: class n has the sizes below 4ⁿ.
var sizes = func() (names [registry.MaxClasses]string) {
	for n := range names {
		names[n] = "<" + strconv.Itoa(1<<(2*n)) + "B"
	}
	return names
}()

// WithAcceptable inspects answers, for replicas that lag behind and servers that degrade.
// acceptable is called when an attempt has ended. It returns false to reject the answer because
// another attempt may give a better one. Nil, the default, accepts every answer.
//
// After a rejected answer the next hedge is due at once, within the budget, and the call waits for
// it and for the attempts in flight. The caller gets the first accepted answer. Without one, the
// caller gets the first rejected reply, or else the first rejected status. No failure replaces a
// rejected reply, not even the end of the caller's context. stats.Counts.Rejected counts rejected
// answers.
//
// acceptable is called with:
//
//   - a reply and a nil err, for the value of [Do] and the first message of a server stream too.
//   - a nil reply and a status that would end the race: see [WithNonFatalCodes].
//   - a nil reply and [io.EOF], for a server stream that ended without a message.
//
// It is not called for other failures, for calls that cannot be hedged, nor for streams decided by
// their response headers: with a hedgingPolicy, or with a caller that calls Header first (see
// [WithWaitForMessage]) or while RecvMsg waits.
//
// acceptable must be safe for concurrent use, and must neither change nor keep the reply. It runs
// with the caller's context on the goroutine of the attempt, even for attempts that turn out to
// have lost, and its run time adds to the latency. If it panics, the attempt panics.
func WithAcceptable(acceptable func(ctx context.Context, method string, reply any, err error) bool) Option {
	return option("WithAcceptable", anywhere, nil, func(c *settings.Config) { c.Acceptable = acceptable })
}
