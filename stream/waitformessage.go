package stream

import (
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/pattern"
)

// Option sets something other than its default in [Interceptor].
type Option func(*options)

type options struct{ patterns []string }

func newOptions(opts []Option) *options {
	o := new(options)
	for _, opt := range opts {
		if opt != nil {
			opt(o)
		}
	}
	return o
}

// WaitForMessage makes Header wait for the first message, so that streams can be hedged whose caller calls Header first. The
// next RecvMsg returns that message. It applies to the full methods that match one of the patterns, such as "/pkg.Svc/Read"
// or "/pkg.Svc/Read*"; the syntax is that of [hedge.WithMethods]. If the option is given more than once, all patterns apply.
// By default Header waits only for headers. If those come early, no hedge can be sent, and Counts of package stats counts the call in
// EarlyHeaders.
//
// Use it for clients that call Header before RecvMsg, as Bigtable's does. Do not use it if the server sends its first message
// only after the client, having received the headers, does something else: Header would wait for ever. For methods with a
// hedgingPolicy it has no effect: gRPC defines that headers end their race.
//
// Nobody knows at that moment into which type of message the caller will receive. So interceptors chained after this one receive
// into a message of the type that the method's descriptor names, if it is linked into the program, and otherwise into one that
// means nothing to them. If a call option chooses a codec, it is always one of the latter. The caller gets what the server
// has sent, decoded into the caller's message. What such an interceptor has changed in a message that means something to it is
// changed for the caller too. An interceptor chained after this one must not choose another codec. Where [hedge.WithAnswer] has to
// judge a message of an unknown type, Header waits only for headers.
//
// WaitForMessage panics if there is no pattern or a pattern is malformed, because [Interceptor] cannot return an error.
func WaitForMessage(patterns ...string) Option {
	if len(patterns) == 0 {
		panic("hedge: WaitForMessage(): at least one pattern is needed")
	}
	for _, p := range patterns {
		if err := pattern.Check(p); err != nil {
			panic(fmt.Sprintf("hedge: WaitForMessage(%q): %v", p, err))
		}
	}
	patterns = slices.Clone(patterns)
	return func(o *options) { o.patterns = append(o.patterns, patterns...) }
}

// waits reports whether Header of a call waits for the first message: WaitForMessage names its method, and, if the message is
// to be judged, its type is known.
func (o *options) waits(method string, c *call.Call, opts []grpc.CallOption) bool {
	if len(o.patterns) == 0 || !pattern.Any(o.patterns, method) {
		return false
	}
	of := attempt.NewOptions(opts)
	return !c.Judges() || of.Codec() == nil && described(method) != nil
}

// described returns an empty message of a method's response type, according to the descriptors linked into the program; nil
// if the method is not among them.
func described(method string) any {
	m := pattern.Descriptor(method)
	if m == nil {
		return nil
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil
	}
	return t.New().Interface()
}
