package messages_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gogo "github.com/gogo/protobuf/proto"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/proto/hybridpb"
	"github.com/grpchedge/hedge/proto/lazypb"
	"github.com/grpchedge/hedge/proto/opaquepb"
	"github.com/grpchedge/hedge/proto/openpb"
)

const ms = time.Millisecond

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plan is the server's answer to one attempt.
type plan struct {
	delay time.Duration
	code  codes.Code
	empty bool // a stream without a message
}

// server answers each attempt with a message that holds the attempt's number, and records the
// requests.
type server struct {
	kind  kind
	plans []plan

	mu       sync.Mutex
	requests map[int]string // by attempt
}

// bytesCodec is the server's.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "bytes" }
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}
func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (s *server) handle(_ any, st grpc.ServerStream) error {
	number := hedge.PreviousAttempts(st.Context())
	var request []byte
	if err := st.RecvMsg(&request); err != nil {
		return err
	}
	s.mu.Lock()
	s.requests[number] = string(request)
	s.mu.Unlock()
	plan := s.plans[number]
	if _, err := hedgetest.Taking(plan.delay)(st.Context()); err != nil {
		return err
	}
	if plan.code != codes.OK || plan.empty {
		return status.Error(plan.code, "as planned")
	}
	reply := encoded(s.kind.codec, s.kind.filled(uint64(number+1)))
	return st.SendMsg(&reply)
}

// connectT starts the server and returns a connection to it.
func (s *server) connectT(t *testing.T, options ...grpc.DialOption) *grpc.ClientConn {
	s.requests = map[int]string{}
	listener := testserver.NewListener()
	gs := grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(s.handle),
		grpc.ForceServerCodecV2(bytesCodec{}))
	go func() { _ = gs.Serve(listener) }()
	t.Cleanup(gs.Stop)
	conn, err := grpc.NewClient("passthrough:///messages", append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.Dial(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	testserver.ConnectT(t, conn)
	return conn
}

// call makes a call with one message each, by a stream or not, and receives into reply.
func call(ctx context.Context, conn *grpc.ClientConn, stream bool, request, reply any, opts ...grpc.CallOption) error {
	if !stream {
		return conn.Invoke(ctx, testpb.TestService_UnaryNoSideEffects_FullMethodName, request, reply, opts...)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true},
		testpb.TestService_ServerStream_FullMethodName, opts...)
	if err == nil {
		err = errors.Join(st.SendMsg(request), st.CloseSend())
	}
	if err == nil {
		err = st.RecvMsg(reply)
	}
	return err
}

// result is the caller's view of a finished call.
type result struct {
	code  codes.Code
	eof   bool
	reply string
}

func outcome(k kind, err error, reply any) result {
	return result{code: status.Code(err), eof: err == io.EOF, reply: k.show(reply)}
}

func TestMessages(t *testing.T) {
	for _, race := range []struct {
		name    string
		plans   []plan
		winner  int // if there is a hedge
		streams bool
	}{
		{name: "the primary wins", plans: []plan{{delay: 30 * ms}, {delay: time.Hour}}},
		{name: "the hedge wins", plans: []plan{{delay: 50 * ms}, {delay: 5 * ms}}, winner: 1},
		{name: "all fail",
			plans: []plan{{delay: 30 * ms, code: codes.Unavailable}, {delay: 5 * ms, code: codes.Unavailable}}},
		{name: "all fail for good",
			plans: []plan{{delay: 50 * ms, code: codes.NotFound}, {delay: 5 * ms, code: codes.NotFound}}, winner: 1},
		{name: "the hedge wins without a message",
			plans: []plan{{delay: 50 * ms, empty: true}, {delay: 5 * ms, empty: true}}, winner: 1, streams: true},
	} {
		for name, k := range kinds {
			for n := range 4 {
				streams, stale := n < 2, n%2 == 0
				if race.streams && !streams {
					continue // a unary call has a message
				}
				hedgetest.Run(t, fmt.Sprintf("%s/%s/stream=%t,stale=%t", race.name, name, streams, stale),
					func(t *testing.T) { compare(t, k, streams, race.plans, race.winner, stale) })
			}
		}
	}
}

// compare makes a call of the kind hedged and plain. If it is stale, the reply holds something
// before.
func compare(t *testing.T, k kind, streams bool, plans []plan, winner int, stale bool) {
	hedged := k.hedged && !stale || k.stale && stale
	if !hedged {
		winner = 0
	}
	reply := func() any {
		if stale {
			return k.filled(1000)
		}
		return k.empty()
	}

	// Of the plain call the only attempt does as the winner does.
	control := &server{kind: k, plans: plans[winner : winner+1]}
	if winner > 0 { // and is reported
		filled := k.filled
		control.kind.filled = func(id uint64) any { return filled(id + uint64(winner)) }
	}
	message := reply()
	err := call(t.Context(), control.connectT(t), streams, k.filled(7), message, k.options()...)
	want := outcome(k, err, message)

	s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
	tested := &server{kind: k, plans: plans}
	conn := tested.connectT(t, hedgetest.Interceptors(s)...)
	message = reply()
	err = call(t.Context(), conn, streams, k.filled(7), message, k.options()...)
	if got := outcome(k, err, message); got != want {
		t.Errorf("%+v (%v)\nwithout hedging it is\n%+v", got, err, want)
	}

	synctest.Wait()
	attempts := 1
	if stats := s.Stats(); hedged {
		attempts = 2
		if stats.Hedges != 1 || stats.NotReplayable != 0 {
			t.Errorf("%+v: it was not hedged", stats)
		}
	} else if stats.Hedges != 0 || stats.NotReplayable != 1 {
		t.Errorf("%+v: hedged, or not counted", stats)
	}
	tested.mu.Lock()
	defer tested.mu.Unlock()
	if len(tested.requests) != attempts {
		t.Errorf("%d attempts, want %d", len(tested.requests), attempts)
	}
	for n, got := range tested.requests {
		if got != control.requests[0] {
			t.Errorf("attempt %d asks %q, without hedging it is %q", n, got, control.requests[0])
		}
	}
}

// kind is one kind of messages.
type kind struct {
	codec  encoding.CodecV2    // nil for gRPC's own
	empty  func() any          // a reply as a caller makes it
	filled func(id uint64) any // a message that holds id
	show   func(m any) string  // all that the message holds
	hedged bool                // with an empty reply
	stale  bool                // hedged also if the reply holds something
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
