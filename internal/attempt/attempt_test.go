package attempt_test

import (
	"bytes"
	"encoding/json"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/race"
	testpb "github.com/grpchedge/hedge/proto"
)

// legacy is a message of the API that came before google.golang.org/protobuf. It copies nothing of
// itself, and decodes into the memory that it is given.
type legacy struct {
	Name  string           `protobuf:"bytes,1,opt"`
	Data  []byte           `protobuf:"bytes,2,opt"`
	Parts []*legacy        `protobuf:"bytes,3,rep"`
	Times map[string]int64 `protobuf:"bytes,4,rep" protobuf_key:"bytes,1,opt" protobuf_val:"varint,2,opt"`
	Next  *legacy          `protobuf:"bytes,5,opt"`

	XXX_sizecache int32
}

func (m *legacy) Reset()                   { *m = legacy{} }
func (m *legacy) String() string           { return m.Name }
func (*legacy) ProtoMessage()              {}
func (*legacy) Merge(protoadapt.MessageV1) { panic("brittle") }
func (m *legacy) Marshal() ([]byte, error) { return json.Marshal(m) }
func (m *legacy) Unmarshal(data []byte) error {
	return json.Unmarshal(data, m)
}

// raw encodes its memory itself, and decodes into the memory that it is given.
type raw struct {
	Data []byte `protobuf:"bytes,1,opt"`
}

func (m *raw) Reset()                      { *m = raw{} }
func (*raw) String() string                { return "raw" }
func (*raw) ProtoMessage()                 {}
func (m *raw) Marshal() ([]byte, error)    { return m.Data, nil }
func (m *raw) Unmarshal(data []byte) error { m.Data = data; return nil }

// secretive encodes a field that it does not decode.
type secretive struct {
	Id uint64 `protobuf:"fixed64,4,opt,name=id"`
}

func (m *secretive) Reset()               { *m = secretive{} }
func (*secretive) String() string         { return "secretive" }
func (*secretive) ProtoMessage()          {}
func (*secretive) Unmarshal([]byte) error { return nil }
func (m *secretive) Marshal() ([]byte, error) {
	return protowire.AppendFixed64(protowire.AppendTag(nil, 4, protowire.Fixed64Type), m.Id), nil
}

// embedded has a message's methods, and more than its state.
type embedded struct {
	*testpb.Reply
	Note string
}

var (
	own    = attempt.NewOptions(nil)
	forced = attempt.NewOptions([]grpc.CallOption{grpc.ForceCodecV2(encoding.GetCodecV2(protocodec.Name))})
)

func TestReply_TakesAMessage(t *testing.T) {
	stale := func(m proto.Message) proto.Message {
		m.ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 0x01})
		return m
	}
	for _, src := range []proto.Message{&testpb.Reply{}, stale(&testpb.Reply{Id: 5})} {
		dst := stale(&testpb.Reply{Id: 4, Attempt: 1, Payload: []byte("stale")})
		reply, ok := own.Reply(dst)
		got := reply.Make().(proto.Message)
		if !ok || proto.Size(got) > 0 {
			t.Errorf("a new reply is %v, %t", got, ok)
		}
		proto.Merge(got, src)
		reply.Take(got)
		if diff := cmp.Diff(src, dst, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
	old := &legacy{}
	reply, _ := own.Reply(old)
	got := reply.Make().(*legacy)
	old.Name, got.Name = "a loser's", "the winner's"
	if reply.Take(got); old.Name != "the winner's" {
		t.Errorf("the name is %q, want the winner's", old.Name)
	}
}

// TestReply_Restores restores the content that a reply had before the call. If no attempt has
// changed the reply, pointers into it stay valid.
func TestReply_Restores(t *testing.T) {
	for _, tc := range []struct {
		reply, want any
		change      func(m any) // nil: none
	}{
		{&testpb.Reply{}, &testpb.Reply{}, func(m any) { m.(*testpb.Reply).Id = 7 }},
		{&testpb.Reply{Id: 1, Payload: []byte("held")}, &testpb.Reply{Id: 1, Payload: []byte("held")},
			func(m any) { proto.Reset(m.(proto.Message)) }},
		{&testpb.Reply{Payload: []byte("held")}, &testpb.Reply{Payload: []byte("held")}, nil},
		{&legacy{}, &legacy{}, func(m any) { m.(*legacy).Name = "7" }},
	} {
		reply, _ := own.Reply(tc.reply)
		was, held := reply.Content(), tc.reply
		if m, ok := tc.reply.(*testpb.Reply); ok && tc.change == nil {
			held = &m.Payload[0]
		}
		if tc.change != nil {
			tc.change(tc.reply)
		}
		reply.Restore(was)
		if diff := cmp.Diff(tc.want, tc.reply, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		if m, ok := tc.reply.(*testpb.Reply); ok && tc.change == nil && held != any(&m.Payload[0]) {
			t.Error("pointers into the reply are no longer valid")
		}
	}
}

// TestKinds lists the kinds of replies and requests that a hedge can have its own of, with gRPC's
// own codec and another.
func TestKinds(t *testing.T) {
	var none, all, ofOwn, onlyEmpty = [4]bool{}, [4]bool{true, true, true, true}, [4]bool{true, false, true, false},
		[4]bool{false, false, true, false}
	onlyReply := [4]bool{true, false, false, false}
	endless := &legacy{}
	endless.Next = endless
	const overhead = 3*2 + 1 + 3 // small numbers, a tag and a length
	sized := func(n int) any {
		return &testpb.Request{Id: 1, Messages: 1, ReplyBytes: 1, Payload: make([]byte, n-overhead)}
	}
	unknown := &testpb.Request{}
	unknown.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType),
		make([]byte, race.MaxRequest)))
	differ := func(a, b any) string {
		if large, ok := a.(*testpb.Request); ok { // too large for cmp
			copied, _ := b.(proto.Message)
			return map[bool]string{false: "by content"}[proto.Equal(large, copied)]
		}
		return cmp.Diff(a, b, protocmp.Transform())
	}
	for name, tc := range map[string]struct {
		m    any
		want [4]bool // reply and request, first with gRPC's own codec
	}{
		"nil":                  {nil, none},
		"empty message":        {&testpb.Reply{}, all},
		"message":              {&testpb.Reply{Id: 1}, [4]bool{true, false, true, true}},
		"largest":              {sized(race.MaxRequest), [4]bool{true, false, true, true}},
		"too large":            {sized(race.MaxRequest + 1), onlyReply},
		"too many":             {&descriptorpb.DescriptorProto{ReservedName: make([]string, race.MaxRequest/2+1)}, onlyReply},
		"too much unknown":     {unknown, onlyReply},
		"nil message":          {(*testpb.Reply)(nil), [4]bool{false, false, true, true}},
		"dynamic message":      {dynamicpb.NewMessage((&testpb.Reply{}).ProtoReflect().Descriptor()), all},
		"nil dynamic message":  {(*dynamicpb.Message)(nil), none},
		"empty legacy message": {&legacy{}, ofOwn},
		"legacy message":       {&legacy{Name: "old"}, onlyEmpty},
		"nil legacy message":   {(*legacy)(nil), none},
		"large legacy message": {&legacy{Data: make([]byte, race.MaxRequest)}, none},
		"endless":              {endless, none},
		"only encoded":         {&secretive{Id: 3}, none},
		"embedded":             {&embedded{Reply: &testpb.Reply{}}, none},
		"nil inside":           {&embedded{}, none},
		"struct":               {struct{}{}, none},
		"pointer":              {new([]byte), none},
	} {
		var got [4]bool
		for i, o := range []attempt.CallOptions{own, forced} {
			_, got[i] = o.Reply(tc.m)
			if o.Replayable(tc.m) {
				copied := o.Copy(tc.m)
				got[2+i] = copied != nil
				if diff := differ(tc.m, copied); got[2+i] && diff != "" {
					t.Errorf("%s: the copy differs: %s", name, diff)
				}
			}
		}
		for i, o := range []attempt.CallOptions{own, forced} {
			kept := o.Keep(tc.m)
			if diff := differ(tc.m, kept.Message()); (kept != nil) != tc.want[2+i] ||
				kept != nil && diff != "" && name != "nil message" {
				t.Errorf("%s: kept %t, it differs: %s", name, kept != nil, diff)
			}
			kept.Free()
		}
		if got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestKeep keeps requests in the memory of earlier ones while hedges use messages made of these.
func TestKeep(t *testing.T) {
	request := func(n int) *testpb.Request {
		return &testpb.Request{Id: uint64(n), Payload: bytes.Repeat([]byte{byte(n)}, n)}
	}
	sent := map[int]any{}
	for _, n := range []int{0, 1, 1000, 64 << 10, 2, 999, 65 << 10, 64<<10 - 20, race.MaxRequest / 2, 0, 1001} {
		req := request(n)
		kept := own.Keep(req)
		req.Id = 7
		clear(req.Payload)
		sent[n] = kept.Message()
		if another := kept.Message(); n < 60000 && another == sent[n] {
			t.Error("two hedges share a message")
		}
		kept.Free()
	}
	for n, m := range sent {
		if !proto.Equal(request(n), m.(proto.Message)) {
			t.Errorf("a request with %d bytes differs", n)
		}
	}
	req := request(1000)
	// the race detector empties the pool now and then
	if n := testing.AllocsPerRun(1000, func() { own.Keep(req).Free() }); n >= 1 {
		t.Errorf("%v allocations", n)
	}
	invalid := wrapperspb.String("\xff")
	if m := own.Keep(invalid).Message(); !proto.Equal(m.(proto.Message), invalid) {
		t.Errorf("kept %v, want %v", m, invalid)
	}
}

// TestCopy_IsDeep changes the caller's request of the older API afterwards. TestKeep does so with
// others.
func TestCopy_IsDeep(t *testing.T) {
	filled := func(s string) *legacy {
		return &legacy{
			Name: s, Data: []byte(s), Parts: []*legacy{{Name: s}, nil, {Data: []byte{}}},
			Times: map[string]int64{s: 1, "b": 2, "c": 3},
			Next:  &legacy{Name: s},
		}
	}
	old := filled("older")
	got := own.Copy(old)
	old.Data[0], old.Parts[0].Name, old.Next.Name = 'X', "X", "X"
	clear(old.Times)
	if diff := cmp.Diff(filled("older"), got); diff != "" {
		t.Error(diff)
	}
	memory := &raw{[]byte("older")}
	own.Copy(memory).(*raw).Data[0] = 'X'
	if string(memory.Data) != "older" {
		t.Error("the copy shares memory with the request")
	}
}

// TestKeep_Memory keeps large requests, and then as many small ones, which do not use the memory of
// the large ones.
func TestKeep_Memory(t *testing.T) {
	const requests, large, small = 500, 60_000, 100
	options := attempt.NewOptions(nil)
	keep := func(size int) []*attempt.Kept {
		all := make([]*attempt.Kept, requests)
		for n := range all {
			all[n] = options.Keep(&testpb.Request{Payload: make([]byte, size)})
		}
		return all
	}
	heap := func() (bytes uint64) {
		for range 3 { // a pool drops unused memory after two collections
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, k := range keep(large) {
		k.Free()
	}
	all := keep(small)
	with := heap()
	clear(all)
	if without := heap(); with > without+requests*large/4 {
		t.Errorf("%d requests of %d bytes take %d bytes", requests, small, with-without)
	}
}
