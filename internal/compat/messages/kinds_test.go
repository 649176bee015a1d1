package messages_test

import (
	"cmp"
	"encoding/json"
	"fmt"

	gogo "github.com/gogo/protobuf/proto"
	"github.com/jhump/protoreflect/desc"          //lint:ignore SA1019 clients still have such messages
	jhump "github.com/jhump/protoreflect/dynamic" //lint:ignore SA1019 clients still have such messages
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/proto/hybridpb"
	"github.com/grpchedge/hedge/proto/lazypb"
	"github.com/grpchedge/hedge/proto/opaquepb"
	"github.com/grpchedge/hedge/proto/openpb"
)

// kind is one kind of messages.
type kind struct {
	codec   encoding.CodecV2    // nil for gRPC's own
	empty   func() any          // a reply as a caller makes it
	filled  func(id uint64) any // a message that holds id
	request func(id uint64) any // if requests are of another kind; encoded by the same codec
	show    func(m any) string  // all that the message holds
	hedged  bool                // with an empty reply
	stale   bool                // hedged also if the reply holds something
}

var kinds = map[string]kind{
	"generated, open":   protobuf[openpb.Reply](func(m *openpb.Reply, id uint64) { m.Id = &id }),
	"generated, proto3": protobuf[testpb.Reply](func(m *testpb.Reply, id uint64) { m.Id = id }),
	"generated, hybrid": protobuf[hybridpb.Reply](func(m *hybridpb.Reply, id uint64) { m.SetId(id) }),
	"generated, opaque": protobuf[opaquepb.Reply](func(m *opaquepb.Reply, id uint64) { m.SetId(id) }),
	"generated, lazy": protobuf[lazypb.Node](func(m *lazypb.Node, id uint64) {
		m.SetNested(&lazypb.Node{})
		m.GetNested().SetNested(&lazypb.Node{})
		m.GetNested().GetNested().SetId(id)
	}),
	"dynamicpb": {
		empty:  func() any { return dynamicpb.NewMessage((&testpb.Reply{}).ProtoReflect().Descriptor()) },
		filled: func(id uint64) any { return redescribed(&testpb.Reply{Id: id}) },
		show:   func(m any) string { return fmt.Sprintf("%T %s", m, encoded(nil, m)) }, hedged: true, stale: true,
	},
	"gogo, not nullable": {
		empty:  func() any { return &gogoReply{} },
		filled: func(id uint64) any { return &gogoReply{Inner: gogoInner{ID: id}, Many: []gogoInner{{ID: id + 1}}} },
		show:   shown, hedged: true,
	},
	"jhump dynamic": {
		empty: func() any { return jhumpReply(0) }, filled: func(id uint64) any { return jhumpReply(id) },
		show: func(m any) string { return m.(*jhump.Message).String() },
	},
	"jhump dynamic request": {
		empty:   func() any { return &testpb.Reply{} },
		filled:  func(id uint64) any { return &testpb.Reply{Id: id} },
		request: func(id uint64) any { return jhumpReply(id) },
		show:    shown,
	},
	"mem.BufferSlice": {
		codec:  bufferCodec{},
		empty:  func() any { return &mem.BufferSlice{} },
		filled: func(id uint64) any { return &mem.BufferSlice{buffer(id), buffer(id + 1)} },
		show:   func(m any) string { return string(m.(*mem.BufferSlice).Materialize()) },
	},
}

// protobuf is a kind of generated messages.
func protobuf[M any, P interface {
	*M
	proto.Message
}](fill func(P, uint64)) kind {
	return kind{
		empty:  func() any { return P(new(M)) },
		filled: func(id uint64) any { m := P(new(M)); fill(m, id); return m },
		show:   func(m any) string { return fmt.Sprintf("%T %s", m, encoded(nil, m)) }, hedged: true, stale: true,
	}
}

func shown(m any) string {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%T %s", m, text)
}

// encoded returns the codec's wire encoding of m.
func encoded(codec encoding.CodecV2, m any) []byte {
	slice, err := cmp.Or(codec, encoding.GetCodecV2(grpcproto.Name)).Marshal(m)
	if err != nil {
		panic(err)
	}
	defer slice.Free()
	return slice.Materialize()
}

// options force the kind's codec.
func (k kind) options() []grpc.CallOption {
	if k.codec == nil {
		return nil
	}
	return []grpc.CallOption{grpc.ForceCodecV2(k.codec)}
}

func redescribed(m proto.Message) proto.Message {
	d := dynamicpb.NewMessage(m.ProtoReflect().Descriptor())
	data, err := proto.Marshal(m)
	if err == nil {
		err = proto.Unmarshal(data, d)
	}
	if err != nil {
		panic(err)
	}
	return d
}

// gogoReply has messages by value, as gogoproto's nullable=false does, and encodes itself.
type gogoReply struct {
	Inner gogoInner   `protobuf:"bytes,1,opt,name=inner"`
	Many  []gogoInner `protobuf:"bytes,2,rep,name=many"`
}

func (m *gogoReply) Reset()       { *m = gogoReply{} }
func (*gogoReply) String() string { return "gogoReply" }
func (*gogoReply) ProtoMessage()  {}

type gogoInner struct {
	ID uint64 `protobuf:"varint,1,opt,name=id"`
}

func (m *gogoInner) Reset()       { *m = gogoInner{} }
func (*gogoInner) String() string { return "gogoInner" }
func (*gogoInner) ProtoMessage()  {}

func (m *gogoReply) Marshal() ([]byte, error)    { return gogo.Marshal((*gogoFields)(m)) }
func (m *gogoReply) Unmarshal(data []byte) error { return gogo.Unmarshal(data, (*gogoFields)(m)) }

type gogoFields gogoReply

func (m *gogoFields) Reset()       { *m = gogoFields{} }
func (*gogoFields) String() string { return "gogoFields" }
func (*gogoFields) ProtoMessage()  {}

func jhumpReply(id uint64) *jhump.Message {
	described, err := desc.WrapMessage((&testpb.Reply{}).ProtoReflect().Descriptor())
	if err != nil {
		panic(err)
	}
	m := jhump.NewMessage(described)
	if id != 0 {
		m.SetFieldByName("id", id)
	}
	return m
}

// bufferCodec forwards buffers as a proxy does: gRPC frees the encoded buffer.
type bufferCodec struct{}

func (bufferCodec) Name() string                           { return "buffers" }
func (bufferCodec) Marshal(v any) (mem.BufferSlice, error) { return *v.(*mem.BufferSlice), nil }
func (bufferCodec) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	*v.(*mem.BufferSlice) = data
	return nil
}

func buffer(id uint64) mem.Buffer {
	data := make([]byte, 4096) // less is not counted
	copy(data, fmt.Sprintf("buffer %d", id))
	return mem.NewBuffer(&data, mem.DefaultBufferPool())
}
