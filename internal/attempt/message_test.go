package attempt_test

import (
	"bytes"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
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
			_ = reply.Take(got, nil)
			if diff := cmp.Diff(tc.src, tc.dst, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReply_OfOtherKinds(t *testing.T) {
	dst := &frame{}
	made, take := replyTo(t, dst)
	dst.bytes = []byte("a loser's")
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
	var anything any
	made, take = replyTo(t, &anything)
	*made.(*any) = map[string]any{"new": 1.0}
	if take(); !cmp.Equal(anything, map[string]any{"new": 1.0}) {
		t.Errorf("%v", anything)
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
	return made, func() { _ = r.Take(made, nil) }
}

func TestNewReply(t *testing.T) {
	for name, tc := range map[string]struct {
		reply any
		want  bool
	}{
		"nil":                       {nil, false},
		"message":                   {&testpb.Reply{Id: 1}, true},
		"nil message":               {(*testpb.Reply)(nil), false},
		"dynamic message":           {dynamicpb.NewMessage((&testpb.Reply{}).ProtoReflect().Descriptor()), true},
		"nil dynamic message":       {(*dynamicpb.Message)(nil), false},
		"legacy message":            {&legacy{Name: "stale"}, true},
		"nil legacy message":        {(*legacy)(nil), false},
		"pointer":                   {&frame{}, true},
		"pointer to what was there": {&frame{bytes: []byte("stale")}, false},
		"nil pointer":               {(*frame)(nil), false},
		"struct":                    {frame{}, false},
		"map":                       {map[string]int{}, false},
		"slice":                     {[]byte{1}, false},
		"pointer to a slice":        {new([]byte), true},
		"pointer to a full slice":   {&[]byte{1}, false},
		"func":                      {func() {}, false},
		"JSON":                      {new(document), true},
		"wrapped message":           {&wrapped{Reply: &testpb.Reply{}}, false},
		"empty wrapped message":     {&wrapped{}, true},
		"not protobuf's state":      {&impostor{}, true},
		"what must not be copied":   {new(struct{ mu sync.Mutex }), true},
	} {
		if _, got := attempt.NewReply(tc.reply); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// document is a message of a JSON codec.
type document struct {
	Title string
	Views *int
	Tags  map[string]any
	Parts []struct{ Text string }
}

// wrapped and impostor have a message's methods and more than a message's state.
type wrapped struct {
	*testpb.Reply
	Note string
}

type impostor struct{ State map[string]string }

func (*impostor) Reset()         {}
func (*impostor) String() string { return "" }
func (*impostor) ProtoMessage()  {}

// notNullable is a message as gogo makes it, which has another by value; hidden has a field that no tag describes.
type notNullable struct {
	Inner legacy `protobuf:"bytes,1,opt,name=inner"`
}

func (m *notNullable) Reset()       { *m = notNullable{} }
func (*notNullable) String() string { return "" }
func (*notNullable) ProtoMessage()  {}

type hidden struct {
	Name  string `protobuf:"bytes,1,opt,name=name"`
	Cache int
}

func (m *hidden) Reset()       { *m = hidden{} }
func (*hidden) String() string { return "" }
func (*hidden) ProtoMessage()  {}

// nested has a hidden one inside, and all of a legacy message around it.
type nested struct {
	Parts            []*hidden `protobuf:"bytes,1,rep,name=parts"`
	XXX_unrecognized []byte    `json:"-"`
	XXX_sizecache    int32     `json:"-"`
}

func (m *nested) Reset()       { *m = nested{} }
func (*nested) String() string { return "" }
func (*nested) ProtoMessage()  {}

// brittle panics when it is copied, but for an empty one.
type brittle struct {
	Name string `protobuf:"bytes,1,opt,name=name"`
}

func (m *brittle) Reset()       { *m = brittle{} }
func (*brittle) String() string { return "" }
func (*brittle) ProtoMessage()  {}
func (*brittle) Merge(src protoadapt.MessageV1) {
	if src.(*brittle).Name != "" {
		panic("brittle")
	}
}

// delegating says that it is a message, and has the reflection of another.
type delegating struct{ testpb.Reply }

func (d *delegating) ProtoReflect() protoreflect.Message { return d.Reply.ProtoReflect() }

func TestRequest(t *testing.T) {
	open := &testpb.Request{Id: 1, Payload: []byte("payload")}
	dynamic := dynamicpb.NewMessage(open.ProtoReflect().Descriptor())
	proto.Merge(dynamic, open)
	const overhead = 3*2 + 1 + 3 // small numbers, a tag and a length
	copied, shared, none := "copied", "shared", "not repeated"
	for name, tc := range map[string]struct {
		req  any
		want string
	}{
		"message":                  {open, copied},
		"nil message":              {(*testpb.Request)(nil), copied},
		"dynamic message":          {dynamic, copied},
		"legacy message":           {&legacy{Name: "old"}, copied},
		"nil legacy message":       {(*legacy)(nil), copied},
		"nil":                      {nil, shared},
		"text":                     {"text", shared},
		"pointer":                  {&frame{}, shared},
		"JSON":                     {&document{Title: "title"}, shared},
		"not protobuf's state":     {&impostor{}, shared},
		"not nullable":             {&notNullable{}, shared},
		"hidden field":             {&hidden{}, shared},
		"hidden field, deeper":     {&nested{}, shared},
		"wrapped message":          {&wrapped{Reply: &testpb.Reply{}}, shared},
		"empty wrapped message":    {&wrapped{}, shared},
		"delegating":               {&delegating{}, shared},
		"counted buffers":          {mem.BufferSlice{}, none},
		"counted buffers, deeper":  {&struct{ data []mem.Buffer }{}, none},
		"reader":                   {strings.NewReader("text"), none},
		"reader, deeper":           {&struct{ body io.ReadCloser }{}, none},
		"reader by value":          {struct{ body bytes.Buffer }{}, none},
		"channel":                  {make(chan int), none},
		"largest":                  {&testpb.Request{Id: 1, Messages: 1, ReplyBytes: 1, Payload: make([]byte, attempt.MaxCopy-overhead)}, copied},
		"too large":                {&testpb.Request{Id: 1, Messages: 1, ReplyBytes: 1, Payload: make([]byte, attempt.MaxCopy-overhead+1)}, none},
		"too many":                 {&descriptorpb.DescriptorProto{ReservedName: make([]string, attempt.MaxCopy/2+1)}, none},
		"too many numbers":         {&descriptorpb.SourceCodeInfo_Location{Path: make([]int32, attempt.MaxCopy)}, none},
		"too many, in a map":       {manyEntries(t, attempt.MaxCopy/32), none},
		"too much that is unknown": {unknown(attempt.MaxCopy), none},
		"some of all":              {manyEntries(t, 10), copied},
	} {
		t.Run(name, func(t *testing.T) {
			r := attempt.NewRequest(tc.req)
			if !r.Replayable() {
				if tc.want != none {
					t.Errorf("not replayable, want it %s", tc.want)
				}
				return
			}
			sent, ok := r.Message()
			again, _ := r.Message()
			same := reflect.DeepEqual(sent, tc.req)
			if m, isProto := tc.req.(proto.Message); isProto && tc.want == copied {
				same = proto.Equal(sent.(proto.Message), m)
			}
			if !ok || !same || again != sent || r.Shared() != (tc.want == shared) || tc.want == none {
				t.Errorf("%v, %v: same %v, once %v, shared %v; want it %s", sent, ok, same, again == sent, r.Shared(), tc.want)
			}
			if v := reflect.ValueOf(sent); v.Kind() == reflect.Pointer && !v.IsNil() && (sent != tc.req) != (tc.want == copied) {
				t.Error("it is the caller's own, or should be")
			}
		})
	}
}

func manyEntries(t *testing.T, n int) proto.Message {
	fields := map[string]any{}
	for i := range n {
		fields[strconv.Itoa(i)] = []any{float64(i), "text", true, nil}
	}
	m, err := structpb.NewStruct(fields)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func unknown(n int) proto.Message {
	m := &testpb.Request{}
	m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, n)))
	return m
}

// TestRequest_ThatPanics is never more than a request that cannot be repeated.
func TestRequest_ThatPanics(t *testing.T) {
	r := attempt.NewRequest(&brittle{Name: "brittle"})
	if !r.Replayable() || r.Shared() {
		t.Error("it should look like any other")
	}
	if sent, ok := r.Message(); ok {
		t.Errorf("%v", sent)
	}
}

func TestCopyRequest(t *testing.T) {
	copyOf := func(m any) (any, bool) {
		r := attempt.NewRequest(m)
		copied, ok := r.Message()
		return copied, ok && !r.Shared()
	}
	req := &testpb.Request{Id: 1, Payload: []byte("payload")}
	copied, ok := copyOf(req)
	req.Payload[0], req.Id = 'X', 2
	if want := (&testpb.Request{Id: 1, Payload: []byte("payload")}); !ok || !proto.Equal(copied.(proto.Message), want) {
		t.Errorf("%v, %v", copied, ok)
	}
	old := &legacy{Name: "old"}
	copied, ok = copyOf(old)
	old.Name = "changed"
	if m, same := copied.(*legacy); !ok || !same || m.Name != "old" {
		t.Errorf("%v, %v", copied, ok)
	}
	for _, m := range []any{&frame{}, &impostor{}, &brittle{Name: "brittle"}, nil} {
		if copied, ok = copyOf(m); ok {
			t.Errorf("%T: %v, %v", m, copied, ok)
		}
	}
}

func BenchmarkNewReply(b *testing.B) {
	for name, reply := range map[string]any{"generated": &testpb.Reply{}, "legacy": &legacy{}, "opaque": &frame{}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := attempt.NewReply(reply); !ok {
					b.Fatal("it cannot be moved")
				}
			}
		})
	}
}
