package stream

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
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

// WaitForMessage has Header wait for the race for the first message, in streams of the full methods that match one of
// the patterns, such as "/pkg.Svc/Read" or "/pkg.Svc/Read*"; the syntax is that of [hedge.WithMethods]. RecvMsg then
// returns that message. Given more than once, the patterns add up. By default Header waits for headers alone, and where
// those come at once and are asked for first nothing can be hedged: [hedge.Stats] counts such calls as EarlyHeaders.
//
// It is for clients that ask for the headers before the first message, as Bigtable's does, and do nothing in between
// that the server waits for: a subscriber that triggers the first event when it has the headers would wait for ever.
// Methods with a hedgingPolicy are committed by headers all the same, as gRPC defines it.
//
// What type the first message is of is known from the streams before, or from the method's descriptor if that is linked
// into the program and the call has no option that chooses a codec. Where neither is known Header waits for headers.
//
// WaitForMessage panics on a malformed pattern, and without any: an interceptor is made when a program starts, and has
// no error to return.
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

// types returns what is known of messages if Header is to wait for those of the method; nil if not.
func (o *options) types(method string) *messageTypes {
	if len(o.patterns) == 0 || !pattern.Any(o.patterns, method) {
		return nil
	}
	return o.messages
}

// messageTypes knows what type of message the streams of methods are received into. Nil knows none.
type messageTypes struct {
	examples sync.Map // method → an empty message
	count    atomic.Int64
}

// maxTypes bounds the methods that are known.
const maxTypes = 1024

// saw takes note of a message that a caller received into.
func (t *messageTypes) saw(method string, m any) {
	if t == nil {
		return
	}
	known, ok := t.examples.Load(method)
	if ok && sameType(known, m) {
		return
	}
	own, valid := attempt.NewReply(m)
	if !valid || !ok && t.count.Add(1) > maxTypes {
		return
	}
	t.examples.Store(method, own.Make())
}

// example returns an empty message of the type of a method's. Unless one was seen it is guessed, for a call whose codec
// takes any protobuf message.
func (t *messageTypes) example(method string, opts []grpc.CallOption) any {
	if t == nil {
		return nil
	}
	if m, ok := t.examples.Load(method); ok {
		return m
	}
	if choosesCodec(opts) {
		return nil
	}
	return described(method)
}

// reply is what makes messages to receive the first one of a stream into; false if its type is not known.
func (t *messageTypes) reply(method string, opts []grpc.CallOption) (attempt.Reply, bool) {
	m := t.example(method, opts)
	if m == nil {
		return attempt.Reply{}, false
	}
	return attempt.NewReply(m)
}

// empty returns a message to receive into where hardly one is to be expected. Any other than of the right type keeps
// what it receives as unknown fields.
func (t *messageTypes) empty(method string, opts []grpc.CallOption) any {
	if own, ok := t.reply(method, opts); ok {
		return own.Make()
	}
	return new(emptypb.Empty)
}

// described returns an empty message of the type that the descriptors linked into the program say a method returns; nil
// if there are none.
func described(method string) any {
	name := strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil
	}
	return t.New().Interface()
}

// choosesCodec reports whether one of the options does.
func choosesCodec(opts []grpc.CallOption) bool {
	return slices.ContainsFunc(opts, func(opt grpc.CallOption) bool {
		switch opt.(type) {
		case grpc.ForceCodecV2CallOption, grpc.ForceCodecCallOption, grpc.ContentSubtypeCallOption:
			return true
		}
		return false
	})
}
