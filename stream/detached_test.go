package stream_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

// TestDetached_HeaderBesideRecv lets a hedge win while Header waits beside Recv, of a call whose primary is left to run: both
// return at once, and the primary's messages are received to the end.
func TestDetached_HeaderBesideRecv(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		numbered := func(d time.Duration, number string) testserver.Plan {
			return testserver.Plan{Delay: d, Header: metadata.Pairs("attempt", number)}
		}
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(numbered(time.Second, "0"), numbered(50*ms, "1"))})
		s := hedgetest.Fixed(t, 10*ms, hedge.WithResetLimit(0, 0), hedge.WithMaxHedges(1))
		conn := cluster.ClientT(t, grpc.WithStreamInterceptor(stream.Interceptor(s)))
		testserver.ConnectT(t, conn)
		began := time.Now()
		st, err := testpb.NewTestServiceClient(conn).ServerStream(t.Context(), &testpb.Request{Id: 1, Messages: 3})
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			time.Sleep(20 * ms)
			md, err := st.Header()
			if at := time.Since(began); err != nil || at != 60*ms || len(md.Get("attempt")) != 1 || md.Get("attempt")[0] != "1" {
				t.Errorf("headers %v, %v after %v", md, err, at)
			}
		}()
		for n := range uint32(3) {
			reply, err := st.Recv()
			if err != nil || reply.Attempt != 1 {
				t.Errorf("message %d: %v, %v", n, reply, err)
			}
		}
		if _, err := st.Recv(); err != io.EOF {
			t.Error(err)
		}
		<-asked
		if left := s.Targets()[0].Resets.Left; left != 1 {
			t.Errorf("%d losers run on", left)
		}
		time.Sleep(2 * time.Second)
		if left := s.Targets()[0].Resets.Left; left != 0 || cluster.Counts().Cancelled != 0 || cluster.Counts().Messages != 6 {
			t.Errorf("%d losers run on, %+v", left, cluster.Counts())
		}
	})
}

// TestDetached_OpaqueRequest has a request that attempts share, whose losers cannot be left to run: no hedge is sent where its
// loser would have to be reset and may not be.
func TestDetached_OpaqueRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(testserver.Plan{Delay: 100 * ms}, testserver.Plan{})})
		s := hedgetest.Fixed(t, 10*ms, hedge.WithResetLimit(0, 0), hedge.WithMaxHedges(1))
		conn := cluster.ClientT(t, hedging(s))
		testserver.ConnectT(t, conn)
		for range 5 {
			st, err := conn.NewStream(t.Context(), &testpb.TestService_ServiceDesc.Streams[0], method, grpc.ForceCodec(&slowCodec{read: make(chan uint64, 2)}))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(st.SendMsg(&opaque{id: 7}), st.CloseSend(), st.RecvMsg(new(testpb.Reply))); err != nil {
				t.Fatal(err)
			}
			if err := st.RecvMsg(new(testpb.Reply)); err != io.EOF {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if n := cluster.Counts().Cancelled; n != 0 || s.Stats().Hedges != 0 {
			t.Errorf("%d resets, %+v", n, s.Stats())
		}
	})
}

// TestDetached_PlannedAgain runs out of resets between the opening of a stream and its first Recv, when the plan is made again
// because of the cost. The stream's primary was opened as one that cannot be left to run, so it is not: the hedge is sent all
// the same, and the primary is reset.
func TestDetached_PlannedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(testserver.Plan{Delay: time.Minute}, testserver.Plan{})})
		s := hedgetest.Fixed(t, 10*ms, hedge.WithResetLimit(16, time.Hour), hedge.WithMaxHedges(1),
			hedge.WithCost(func(context.Context, string, any) float64 { return 1 }))
		client := dial(t, cluster, s)
		open := func() grpc.ServerStreamingClient[testpb.Reply] {
			t.Helper()
			st, err := client.ServerStream(t.Context(), &testpb.Request{Id: 1, Messages: 1})
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		hedgeAnswers := func(st grpc.ServerStreamingClient[testpb.Reply]) {
			t.Helper()
			if reply, err := st.Recv(); err != nil || reply.Attempt != 1 {
				t.Fatalf("%v, %v", reply, err)
			}
			if _, err := st.Recv(); err != io.EOF {
				t.Fatal(err)
			}
		}
		first := open()
		for range 13 {
			hedgeAnswers(open())
		}
		synctest.Wait()
		reset, left := cluster.Counts().Cancelled, s.Targets()[0].Resets.Left
		if reset != 8 || left != 5 {
			t.Fatalf("%d losers were reset and %d run on, want 8 and 5", reset, left)
		}
		hedgeAnswers(first)
		synctest.Wait()
		reset, left = cluster.Counts().Cancelled, s.Targets()[0].Resets.Left
		if reset != 9 || left != 5 {
			t.Errorf("%d losers were reset and %d run on, want 9 and 5", reset, left)
		}
		time.Sleep(time.Minute)
	})
}

// brittleStream is the stream of an interceptor inside, in the primary of which a method panics.
type brittleStream struct {
	grpc.ClientStream
	header  bool
	message int // that panics; 0: none
	n       int
}

func (s *brittleStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if s.header {
		panic("in an interceptor inside")
	}
	return md, err
}

func (s *brittleStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.n++; s.n == s.message {
		panic("in an interceptor inside")
	}
	return err
}

// brittle is an interceptor inside whose streams of primaries are made by f.
func brittle(f func(grpc.ClientStream) grpc.ClientStream) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		st, err := streamer(ctx, desc, cc, method, opts...)
		if md, _ := metadata.FromOutgoingContext(ctx); err == nil && len(md.Get("grpc-previous-rpc-attempts")) == 0 {
			st = f(st)
		}
		return st, err
	})
}

// panicOf returns what f panics with.
func panicOf(f func()) (value any) {
	defer func() {
		if value = recover(); value != nil {
			if p, ok := value.(*hedge.Panic); ok {
				value = p.Value
			}
		}
	}()
	f()
	return nil
}

// TestDetached_HeaderPanics: the user's code that panics in Header, which is called beside Recv, panics on the goroutine of the caller
// of Header, as without hedging. There the caller can recover it.
func TestDetached_HeaderPanics(t *testing.T) {
	for name, opts := range map[string][]hedge.Option{"plain": nil, "left": {hedge.WithResetLimit(0, 0)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(testserver.Plan{HeaderAtOnce: true, Delay: 50 * ms})})
				dial := []grpc.DialOption{brittle(func(st grpc.ClientStream) grpc.ClientStream { return &brittleStream{ClientStream: st, header: true} })}
				if opts != nil {
					s := hedgetest.Fixed(t, time.Hour, opts...)
					dial = append([]grpc.DialOption{grpc.WithChainStreamInterceptor(stream.Interceptor(s))}, dial...)
				}
				conn := cluster.ClientT(t, dial...)
				testserver.ConnectT(t, conn)
				st, err := testpb.NewTestServiceClient(conn).ServerStream(t.Context(), &testpb.Request{Id: 1, Messages: 3})
				if err != nil {
					t.Fatal(err)
				}
				asked := make(chan any)
				go func() {
					time.Sleep(ms)
					asked <- panicOf(func() { _, _ = st.Header() })
				}()
				for range 3 {
					if _, err := st.Recv(); err != nil {
						t.Error(err)
					}
				}
				if _, err := st.Recv(); err != io.EOF {
					t.Error(err)
				}
				if value := <-asked; value != "in an interceptor inside" {
					t.Errorf("Header panics with %v", value)
				}
			})
		})
	}
}

// TestDetached_DrainPanics: a loser with a poor first message is left to run, and the user's code panics at its second message. That
// counts as the panic of a loser.
func TestDetached_DrainPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(
			testserver.Plan{PayloadBytes: 1, Interval: 100 * ms}, testserver.Plan{Delay: 20 * ms})})
		good := func(_ context.Context, _ string, reply any, _ error) bool {
			return reply != nil && len(reply.(*testpb.Reply).GetPayload()) == 0
		}
		s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithResetLimit(0, 0), hedge.WithAnswer(good))
		conn := cluster.ClientT(t, grpc.WithChainStreamInterceptor(stream.Interceptor(s)),
			brittle(func(st grpc.ClientStream) grpc.ClientStream { return &brittleStream{ClientStream: st, message: 2} }))
		testserver.ConnectT(t, conn)
		st, err := testpb.NewTestServiceClient(conn).ServerStream(t.Context(), &testpb.Request{Id: 1, Messages: 3})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if reply, err := st.Recv(); err != nil || reply.Attempt != 1 {
				t.Error(reply, err)
			}
		}
		if _, err := st.Recv(); err != io.EOF {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if row := s.Targets()[0]; row.LoserPanics != 1 || row.Resets.Left != 0 {
			t.Errorf("%+v, %d losers run on", row.Counts, row.Resets.Left)
		}
	})
}
