package attempt_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/grpchedge/hedge/internal/attempt"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/proto/hybridpb"
	"github.com/grpchedge/hedge/proto/opaquepb"
	"github.com/grpchedge/hedge/proto/openpb"
)

// legacy is a message of the API that came before google.golang.org/protobuf, as old generated code has it.
type legacy struct {
	Name string `protobuf:"bytes,1,opt,name=name"`
}

func (m *legacy) Reset()         { *m = legacy{} }
func (m *legacy) String() string { return m.Name }
func (*legacy) ProtoMessage()    {}

var _ protoadapt.MessageV1 = (*legacy)(nil)

// frame stands for the message of a codec of the user's own.
type frame struct{ bytes []byte }

func TestReply_TakesAMessage(t *testing.T) {
	hybrid := &hybridpb.Reply{}
	hybrid.SetId(2)
	opaque := &opaquepb.Reply{}
	opaque.SetId(3)
	opaque.SetPayload([]byte("opaque"))
	open := &openpb.Reply{Id: proto.Uint64(1), Payload: []byte("open")}
	list, err := structpb.NewValue([]any{1, "two", nil, map[string]any{"three": 3}})
	if err != nil {
		t.Fatal(err)
	}
	stale := func(m proto.Message) proto.Message { // holds what must go
		unknown := []byte{0xf8, 0x3f, 0x01}
		m.ProtoReflect().SetUnknown(unknown)
		return m
	}
	for name, tc := range map[string]struct{ dst, src proto.Message }{
		"open":          {stale(&openpb.Reply{Sequence: proto.Uint32(9)}), open},
		"hybrid":        {stale(&hybridpb.Reply{}), hybrid},
		"opaque":        {stale(&opaquepb.Reply{}), opaque},
		"nested":        {structpb.NewStringValue("stale"), list},
		"into itself":   {stale(&testpb.Reply{Id: 4, Attempt: 1}), &testpb.Reply{Id: 5}},
		"empty":         {&testpb.Reply{Id: 4, Attempt: 1, Payload: []byte("stale")}, &testpb.Reply{}},
		"unknown field": {&testpb.Reply{Id: 4}, stale(&testpb.Reply{Id: 5})},
	} {
		t.Run(name, func(t *testing.T) {
			reply, ok := attempt.NewReply(tc.dst)
			if !ok {
				t.Fatal("no message can be moved there")
			}
			got := reply.Make()
			if diff := cmp.Diff(tc.dst.ProtoReflect().New().Interface(), got, protocmp.Transform()); diff != "" {
				t.Errorf("a new reply is not empty: %s", diff)
			}
			proto.Merge(got.(proto.Message), tc.src)
			reply.Take(got)
			if diff := cmp.Diff(tc.src, tc.dst, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReply_OfOtherKinds(t *testing.T) {
	dst := &frame{bytes: []byte("stale")}
	made, take := replyTo(t, dst)
	made.(*frame).bytes = []byte("new")
	if take(); string(dst.bytes) != "new" {
		t.Errorf("%q", dst.bytes)
	}
	old := &legacy{Name: "stale"}
	made, take = replyTo(t, old)
	made.(*legacy).Name = "new"
	if take(); old.Name != "new" {
		t.Errorf("%q", old.Name)
	}
	var any any = "stale"
	_, take = replyTo(t, &any)
	if take(); any != nil {
		t.Errorf("%v", any)
	}
}

// replyTo returns a message made for the caller's reply, and what takes it over.
func replyTo(t *testing.T, caller any) (made any, take func()) {
	t.Helper()
	r, ok := attempt.NewReply(caller)
	if !ok {
		t.Fatalf("no message can be moved to a %T", caller)
	}
	made = r.Make()
	return made, func() { r.Take(made) }
}

func TestNewReply(t *testing.T) {
	for name, tc := range map[string]struct {
		reply any
		want  bool
	}{
		"nil":                {nil, false},
		"message":            {&testpb.Reply{}, true},
		"nil message":        {(*testpb.Reply)(nil), false},
		"legacy message":     {&legacy{}, true},
		"nil legacy message": {(*legacy)(nil), false},
		"pointer":            {&frame{}, true},
		"nil pointer":        {(*frame)(nil), false},
		"struct":             {frame{}, false},
		"map":                {map[string]int{}, false},
		"slice":              {[]byte{1}, false},
		"pointer to a slice": {&[]byte{1}, true},
		"func":               {func() {}, false},
	} {
		if _, got := attempt.NewReply(tc.reply); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCopyRequest(t *testing.T) {
	req := &testpb.Request{Id: 1, Payload: []byte("payload")}
	copied, ok := attempt.CopyRequest(req)
	req.Payload[0], req.Id = 'X', 2
	if want := (&testpb.Request{Id: 1, Payload: []byte("payload")}); !ok || !proto.Equal(copied.(proto.Message), want) {
		t.Errorf("%v, %v", copied, ok)
	}
	old := &legacy{Name: "old"}
	copied, ok = attempt.CopyRequest(old)
	old.Name = "changed"
	if m, same := copied.(*legacy); !ok || !same || m.Name != "old" {
		t.Errorf("%v, %v", copied, ok)
	}
	other := &frame{}
	if copied, ok = attempt.CopyRequest(other); ok || copied != any(other) {
		t.Errorf("%v, %v", copied, ok)
	}
	if copied, ok = attempt.CopyRequest(nil); ok || copied != nil {
		t.Errorf("%v, %v", copied, ok)
	}
	for _, m := range []any{req, old} {
		if !attempt.Copyable(m) {
			t.Errorf("%T is not copyable", m)
		}
	}
	for _, m := range []any{other, nil, "text"} {
		if attempt.Copyable(m) {
			t.Errorf("%T is copyable", m)
		}
	}
}
