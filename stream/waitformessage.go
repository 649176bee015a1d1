package stream

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/pattern"
)

// Option sets something other than its default in [Interceptor].
type Option func(*options)

type options struct {
	patterns []string
	messages *messageTypes
}

func newOptions(opts []Option) *options {
	o := &options{messages: new(messageTypes)}
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
// Header needs the type of the first message. It is known from earlier streams of the method, or from the method's
// descriptor if that is linked into the program and no call option chooses a codec. Otherwise Header waits only for headers.
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

// types returns the known message types if WaitForMessage names the method, and nil otherwise.
func (o *options) types(method string) *messageTypes {
	if len(o.patterns) == 0 || !pattern.Any(o.patterns, method) {
		return nil
	}
	return o.messages
}

// messageTypes holds the type of the messages of each method's streams. A nil messageTypes holds none.
type messageTypes struct {
	examples sync.Map // method → an empty message
	count    atomic.Int64
}

const maxTypes = 1024

// remember stores the type of a message that a caller passed to RecvMsg.
func (t *messageTypes) remember(method string, m any) {
	if t == nil {
		return
	}
	known, ok := t.examples.Load(method)
	if ok && sameType(known, m) {
		return
	}
	replies, valid := attempt.NewReply(m)
	if !valid || !ok && t.count.Add(1) > maxTypes {
		return
	}
	t.examples.Store(method, replies.Make())
}

// reply returns what makes messages for the first receive of a stream; false if their type is not known. If no stream was seen
// before, the type is taken from the descriptor, but only if no call option chooses a codec.
func (t *messageTypes) reply(method string, opts []grpc.CallOption) (attempt.Reply, bool) {
	if t == nil {
		return attempt.Reply{}, false
	}
	m, known := t.examples.Load(method)
	if !known && !choosesCodec(opts) {
		m = described(method)
	}
	return attempt.NewReply(m)
}

// empty returns a message to receive into when the stream has probably ended. If the right type is not known, it is an
// emptypb.Empty, which keeps what it receives as unknown fields.
func (t *messageTypes) empty(method string, opts []grpc.CallOption) any {
	if replies, ok := t.reply(method, opts); ok {
		return replies.Make()
	}
	return new(emptypb.Empty)
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

func choosesCodec(opts []grpc.CallOption) bool {
	return slices.ContainsFunc(opts, func(opt grpc.CallOption) bool {
		switch opt.(type) {
		case grpc.ForceCodecV2CallOption, grpc.ForceCodecCallOption, grpc.ContentSubtypeCallOption:
			return true
		}
		return false
	})
}
