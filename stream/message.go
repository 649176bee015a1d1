package stream

import (
	"cmp"
	"reflect"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	protomessage "google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge/internal/attempt"
)

// handOver moves a first message that Header has received, held, to the message m that the caller then passes to RecvMsg.
func (o *opener) handOver(held, m any) error {
	if replies, ok := attempt.NewReply(m); ok && sameType(held, m) {
		replies.Take(held)
		return nil
	}
	codec := codecOf(o.options.Caller())
	data, err := codec.Marshal(held)
	if err == nil {
		err = codec.Unmarshal(data, m)
		data.Free()
	}
	if err != nil {
		return status.Errorf(codes.Internal, "hedge: WaitForMessage: a message received as %T cannot be received into %T: %v", held, m, err)
	}
	return nil
}

// sameType reports whether two messages are of one type, in the sense of protobuf too.
func sameType(a, b any) bool {
	if reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false
	}
	p, ok := a.(protomessage.Message)
	return !ok || p.ProtoReflect().Descriptor() == b.(protomessage.Message).ProtoReflect().Descriptor()
}

func codecOf(opts []grpc.CallOption) encoding.CodecV2 {
	subtype := proto.Name
	var forced encoding.CodecV2
	for _, opt := range opts {
		switch opt := opt.(type) {
		case grpc.ForceCodecV2CallOption:
			forced = opt.CodecV2
		case grpc.ForceCodecCallOption:
			forced = codecV1{opt.Codec}
		case grpc.ContentSubtypeCallOption:
			subtype = strings.ToLower(opt.ContentSubtype)
		}
	}
	if codec := cmp.Or(forced, encoding.GetCodecV2(subtype)); codec != nil {
		return codec
	}
	if codec := encoding.GetCodec(subtype); codec != nil {
		return codecV1{codec}
	}
	return encoding.GetCodecV2(proto.Name)
}

type codecV1 struct{ encoding.Codec }

func (c codecV1) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.Codec.Marshal(v)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

func (c codecV1) Unmarshal(data mem.BufferSlice, v any) error {
	return c.Codec.Unmarshal(data.Materialize(), v)
}
