package interceptor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
)

// note has the methods of an older message, and goes over the wire as JSON.
type note struct {
	Text string `protobuf:"bytes,1,opt"`
}

func (m *note) Reset()         { *m = note{} }
func (m *note) String() string { return m.Text }
func (*note) ProtoMessage()    {}

// jsonCodec keeps the content of a message that it does not overwrite.
type jsonCodec struct{}

func init() { encoding.RegisterCodec(jsonCodec{}) }

func (jsonCodec) Name() string                       { return "json" }
func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// TestReplies_ThatInterceptorsChange compares with plain gRPC if an interceptor inside changes the
// reply, and chooses another codec. The caller's reply may hold content that the codec keeps. The tests of
// internal/compat/messages have the codecs that a call chooses.
func TestReplies_ThatInterceptorsChange(t *testing.T) {
	for was, hedged := range map[string]int64{"": 1, "a default": 0} {
		hedgetest.Run(t, was, func(t *testing.T) {
			echo := func(_ any, st grpc.ServerStream) error {
				m := new(note)
				if err := st.RecvMsg(m); err != nil {
					return err
				}
				if hedge.PreviousAttempts(st.Context()) == 0 {
					time.Sleep(50 * ms)
				}
				return st.SendMsg(m)
			}
			call := func(s *hedge.Scheduler) string {
				conn := testserver.HandlerT(t, echo, append(hedgetest.Interceptors(s),
					grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
						invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
						err := invoker(ctx, method, req, reply, cc, append(opts, grpc.CallContentSubtype("json"))...)
						reply.(*note).Text += ", changed"
						return err
					}))...)
				reply := &note{was}
				err := conn.Invoke(t.Context(), "/a/B", &note{"hello"}, reply)
				return fmt.Sprint(reply, err)
			}
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
			if got, want := call(s), call(nil); got != want {
				t.Errorf("%s, by plain gRPC %s", got, want)
			}
			if got := s.Stats(); got.HedgeWins != hedged || got.NotReplayable != 1-hedged {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestRule06_OnFinishAfterTheCall has an interceptor inside return before gRPC's call ends, beside
// plain gRPC.
func TestRule06_OnFinishAfterTheCall(t *testing.T) {
	for _, tc := range []struct {
		name  string
		delay time.Duration
	}{{"plain", 0}, {"primary", time.Hour}, {"beside a hedge, whose status is not a server's", ms}} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true,
				Script: func(a testserver.Attempt) testserver.Plan {
					return testserver.Plan{Delay: time.Duration(20-10*a.Number) * ms,
						Header: metadata.Pairs("attempt", fmt.Sprint(a.Number))}
				}})
			s := hedgetest.FixedOrPlain(t, tc.delay, hedge.WithMaxHedges(1))
			conn := dial(t, cluster, s, grpc.WithChainUnaryInterceptor(
				func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker,
					opts ...grpc.CallOption) error {
					go func() {
						_ = invoker(context.WithoutCancel(ctx), method, req, &testpb.Reply{}, cc, opts...)
					}()
					time.Sleep(time.Duration(7-3*simulation.AttemptOf(ctx)) * ms)
					return status.Error(codes.NotFound, "gave up")
				}))
			began, header := time.Now(), metadata.MD{}
			var finished []string
			opts := []grpc.CallOption{grpc.Header(&header), grpc.OnFinish(func(err error) {
				finished = append(finished, fmt.Sprint(time.Since(began), err, header.Get("attempt")))
			})}
			err := conn.Invoke(t.Context(), testpb.TestService_UnaryNoSideEffects_FullMethodName, &testpb.Request{Id: 1},
				new(testpb.Reply), opts...)
			returned := time.Since(began)
			if tc.delay > 0 { // plain gRPC hands the slice to the interceptor, which still uses it
				clear(opts)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if want := "[20ms <nil> [0]]"; status.Code(err) != codes.NotFound || returned >= 10*ms ||
				fmt.Sprint(finished) != want {
				t.Errorf("%v after %v, OnFinish %v, want %s", err, returned, finished, want)
			}
		})
	}
}

func TestNotReadyIsNotHedged(t *testing.T) {
	eachDoor(t, "stopped", func(t *testing.T, d door) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true})
		cluster.Stop(0)
		s := hedgetest.Fixed(t, ms)
		ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
		defer cancel()
		_, err := callOver(ctx, d, testpb.NewTestServiceClient(cluster.ClientT(t, hedgetest.Interceptors(s)...)),
			&testpb.Request{}, grpc.WaitForReady(true))
		if got := s.Stats(); status.Code(err) != codes.DeadlineExceeded || got.Hedges != 0 ||
			d == unary && got.NotReady != 1 {
			t.Errorf("%v, %+v", err, got)
		}
	})
}

// TestTrailer_OfAnAbandonedCall is for the race detector: an interceptor inside returns while gRPC is
// still ending the call, and may write its trailer.
func TestTrailer_OfAnAbandonedCall(t *testing.T) {
	for name, opts := range map[string][]hedge.Option{
		"unhedged": {hedge.WithMethods("/none/*")}, "may be hedged": {hedge.WithAllMethods()},
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(
				testserver.Plan{Delay: ms, Code: codes.Internal, Trailer: metadata.Pairs("a", "b")})})
			s := hedgetest.New(t, append(opts, hedgetest.Throttle(10, 0.1), hedge.WithWarmup(1<<30, time.Second))...)
			left := make(chan error, 1)
			conn := dial(t, cluster, s, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, _ any,
				cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				go func() { left <- invoker(ctx, method, req, new(testpb.Reply), cc, opts...) }()
				time.Sleep(ms)
				return status.Error(codes.Unavailable, "early")
			}))
			for range 20 {
				_, err := testpb.NewTestServiceClient(conn).Unary(t.Context(), &testpb.Request{})
				if status.Code(err) != codes.Unavailable {
					t.Error(err)
				}
				<-left
			}
		})
	}
}

// halfAnswer connects to a server. Its primaries send a message, and fail 50 ms after they began.
// If half is set they send a truncated message after 20 ms: a client decodes its first half and
// then fails. Its hedges end with the code hedged after 10 ms.
func halfAnswer(t *testing.T, s *hedge.Scheduler, half bool, hedged codes.Code) *grpc.ClientConn {
	return testserver.HandlerT(t, func(_ any, st grpc.ServerStream) error {
		if err := st.RecvMsg(&testpb.Request{}); err != nil {
			return err
		}
		if hedge.PreviousAttempts(st.Context()) > 0 {
			time.Sleep(10 * ms)
			return status.Error(hedged, "hedge")
		}
		if half {
			time.Sleep(20 * ms)
			m := &emptypb.Empty{}
			// field 1 is 7; field 2 has 100 bytes, which do not follow
			m.ProtoReflect().SetUnknown([]byte{1 << 3, 7, 2<<3 | 2, 100})
			return st.SendMsg(m)
		}
		if err := st.SendMsg(&testpb.Reply{Id: 7, Payload: []byte("half")}); err != nil {
			return err
		}
		time.Sleep(50 * ms)
		return status.Error(codes.Unavailable, "primary")
	}, hedgetest.Interceptors(s)...)
}

// In TestRule01_AFailureWithAMessage the primary receives a message, or half of one, before it
// fails. If the primary is the outcome, the caller's message is as plain gRPC leaves it. If the
// failure of a hedge is, it stays as it was.
func TestRule01_AFailureWithAMessage(t *testing.T) {
	for _, tc := range []struct {
		name    string
		delay   time.Duration // 0: plain gRPC
		half    bool
		hedged  codes.Code
		code    codes.Code
		primary bool // is the outcome
	}{
		{"plain", 0, false, codes.OK, codes.Unavailable, true},
		{"no hedge was due", time.Hour, false, codes.OK, codes.Unavailable, true},
		{"both fail", 10 * ms, false, codes.Unavailable, codes.Unavailable, true},
		{"the hedge answers while the primary is in flight", 10 * ms, false, codes.NotFound, codes.NotFound, false},
		{"plain, half a message", 0, true, codes.OK, codes.Internal, true},
		{"half a message, and no hedge was due", time.Hour, true, codes.OK, codes.Internal, true},
		{"half a message, and the hedge answers", 15 * ms, true, codes.NotFound, codes.NotFound, false},
	} {
		for _, was := range []*testpb.Reply{{}, {Id: 1, Payload: []byte("held")}} {
			for _, d := range []door{unary, streaming} {
				if d == streaming && !tc.half {
					continue // its first message would be its answer
				}
				hedgetest.Run(t, tc.name+", "+string(was.Payload)+", "+string(d), func(t *testing.T) {
					s := hedgetest.FixedOrPlain(t, tc.delay, hedge.WithReadOnlyMethods("/a/B"), hedge.WithMaxHedges(1))
					reply, want := proto.CloneOf(was), was
					if tc.primary && tc.half {
						want = &testpb.Reply{Id: 7}
					} else if tc.primary {
						want = &testpb.Reply{Id: 7, Payload: []byte("half")}
					}
					err := invokeBy(t.Context(), d, halfAnswer(t, s, tc.half, tc.hedged), reply)
					if status.Code(err) != tc.code || !proto.Equal(reply, want) {
						t.Errorf("%v, and the reply is %v, want %v and %v", err, reply, tc.code, want)
					}
				})
			}
		}
	}
}

// invokeBy makes a call and receives into reply.
func invokeBy(ctx context.Context, d door, conn *grpc.ClientConn, reply any) error {
	if d == unary {
		return conn.Invoke(ctx, "/a/B", &testpb.Request{}, reply)
	}
	st, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/a/B")
	if err == nil {
		err = st.SendMsg(&testpb.Request{})
	}
	if err == nil {
		err = st.RecvMsg(reply)
	}
	return err
}
