package testpb_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/proto/hybridpb"
	"github.com/grpchedge/hedge/proto/opaquepb"
	"github.com/grpchedge/hedge/proto/openpb"
)

func TestIdempotencyLevels(t *testing.T) {
	methods := testpb.File_hedgetest_proto.Services().ByName("TestService").Methods()
	for name, want := range map[protoreflect.Name]descriptorpb.MethodOptions_IdempotencyLevel{
		"Unary":                  descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN,
		"UnaryNoSideEffects":     descriptorpb.MethodOptions_NO_SIDE_EFFECTS,
		"UnaryIdempotent":        descriptorpb.MethodOptions_IDEMPOTENT,
		"ServerStream":           descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN,
		"ServerStreamIdempotent": descriptorpb.MethodOptions_IDEMPOTENT,
	} {
		options := methods.ByName(name).Options().(*descriptorpb.MethodOptions)
		if got := options.GetIdempotencyLevel(); got != want {
			t.Errorf("%s has idempotency level %v, want %v", name, got, want)
		}
	}
}

// A reply of the service decodes into, and encodes from, each of Go's APIs.
func TestRepliesShareAWireShape(t *testing.T) {
	sent := &testpb.Reply{Id: 1 << 60, Sequence: 2, Backend: 3, Attempt: 4, Payload: []byte("five")}
	wire, err := proto.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	for _, reply := range []proto.Message{&openpb.Reply{}, &hybridpb.Reply{}, &opaquepb.Reply{}} {
		if err := proto.Unmarshal(wire, reply); err != nil {
			t.Fatal(err)
		}
		if unknown := reply.ProtoReflect().GetUnknown(); len(unknown) > 0 {
			t.Errorf("%T has lost the unknown field %x", reply, unknown)
		}
		back, err := proto.Marshal(reply)
		if err != nil {
			t.Fatal(err)
		}
		got := &testpb.Reply{}
		if err := proto.Unmarshal(back, got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, sent) {
			t.Errorf("%T sends back %v, want %v", reply, got, sent)
		}
	}
}
