package stream_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// TestReport_BesideRecv is for the race detector: the outcome is complete when Header has returned,
// and is not written later. A hedge is in flight, has failed, is being considered, or cannot be
// made.
func TestReport_BesideRecv(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hedge testserver.Plan
		opts  []hedge.Option
		into  any
		want  stats.Outcome
	}{
		{"in flight", slow(), nil, new(testpb.Reply), stats.Outcome{Attempts: 2, Delay: 10 * ms}},
		{"failed", breaks(0, codes.Internal), nil, new(testpb.Reply), stats.Outcome{Attempts: 2, Delay: 10 * ms}},
		{"considered", slow(), []hedge.Option{hedge.WithBudgetPercent(1), hedge.WithTrace(&hedge.Trace{
			HedgeHeldBack: func(stats.HedgeHeldBack) { time.Sleep(20 * ms) },
		})}, new(testpb.Reply), stats.Outcome{Attempts: 1, Delay: 10 * ms, Reason: stats.BudgetExhausted}},
		{"not replayable", slow(), nil, new(any), stats.Outcome{Attempts: 1, Reason: stats.NotReplayable}},
		{"Header waits for a message", delivers(20 * ms), []hedge.Option{hedge.WithWaitForMessage(method)},
			new(testpb.Reply), stats.Outcome{Attempts: 2, Winner: 1, Delay: 10 * ms}},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true,
				Script: testserver.ByNumber(testserver.Plan{HeaderAtOnce: true, Delay: 100 * ms}, tc.hedge)})
			s := hedgetest.Fixed(t, 10*ms, append(tc.opts, hedge.WithMaxHedges(1))...)
			conn := cluster.ClientT(t, hedging(s))
			testserver.ConnectT(t, conn)
			for n := range 2 { // a budget pays for one hedge
				var outcome stats.Outcome
				st, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method, hedge.Report(&outcome))
				if err == nil {
					err = st.SendMsg(&testpb.Request{Messages: 1})
				}
				if err != nil {
					t.Fatal(err)
				}
				received := make(chan struct{})
				go func() {
					defer close(received)
					_ = st.RecvMsg(tc.into)
				}()
				time.Sleep(20 * ms)
				if _, err = st.Header(); err != nil || n > 0 && outcome != tc.want {
					t.Errorf("%v, reported %+v", err, outcome)
				}
				<-received
			}
		})
	}
}

// TestRule08_AbandonedStreams ends streams in ways that no Recv reports. OnFinish runs once, and no
// attempt is left.
func TestRule08_AbandonedStreams(t *testing.T) {
	open := func(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return conn.NewStream(ctx, &testpb.TestService_ServiceDesc.Streams[0], method, opts...)
	}
	send := func(st grpc.ClientStream) error {
		return errors.Join(st.SendMsg(&testpb.Request{Id: 1}), st.CloseSend())
	}
	for _, tc := range []struct {
		name string
		code codes.Code
		opts []grpc.CallOption
		end  func(st grpc.ClientStream, conn *grpc.ClientConn, cancel func())
	}{
		{"the request is too large", codes.ResourceExhausted, []grpc.CallOption{grpc.MaxCallSendMsgSize(10)},
			func(st grpc.ClientStream, _ *grpc.ClientConn, _ func()) {
				_ = st.SendMsg(&testpb.Request{Payload: make([]byte, 100)})
			}},
		{"cancelled before the request", codes.Canceled, nil,
			func(_ grpc.ClientStream, _ *grpc.ClientConn, cancel func()) { cancel() }},
		{"cancelled before the first Recv", codes.Canceled, nil,
			func(st grpc.ClientStream, _ *grpc.ClientConn, cancel func()) {
				_ = send(st)
				cancel()
				synctest.Wait()
				_ = st.RecvMsg(new(testpb.Reply))
			}},
		{"abandoned", codes.Canceled, nil, func(st grpc.ClientStream, _ *grpc.ClientConn, cancel func()) {
			_ = send(st)
			time.Sleep(time.Second)
			cancel()
		}},
		{"abandoned after the headers", codes.Canceled, nil, func(st grpc.ClientStream, _ *grpc.ClientConn, cancel func()) {
			_ = send(st)
			_, _ = st.Header()
			cancel()
		}},
		{"the connection is closed before the first Recv", codes.Canceled, nil,
			func(st grpc.ClientStream, conn *grpc.ClientConn, _ func()) {
				_ = send(st)
				_ = conn.Close()
			}},
		{"the connection is closed in Recv", codes.Canceled, nil,
			func(st grpc.ClientStream, conn *grpc.ClientConn, _ func()) {
				_ = send(st)
				time.AfterFunc(100*ms, func() { _ = conn.Close() })
				_ = st.RecvMsg(new(testpb.Reply))
			}},
		{"a second request", codes.Internal, nil, func(st grpc.ClientStream, _ *grpc.ClientConn, _ func()) {
			_ = send(st)
			_ = st.SendMsg(&testpb.Request{Id: 1})
		}},
	} {
		for _, delay := range []time.Duration{0, 10 * ms} {
			hedgetest.Run(t, fmt.Sprintf("%s,delay=%v", tc.name, delay), func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(
					testserver.Plan{HeaderAtOnce: true, Ending: testserver.Hang},
					testserver.Plan{Ending: testserver.Hang})})
				conn := cluster.ClientT(t, hedging(hedgetest.FixedOrPlain(t, delay, hedge.WithMaxHedges(1))))
				testserver.ConnectT(t, conn)
				ctx, cancel := context.WithCancel(t.Context())
				finished := make(chan error, 10)
				st, err := open(ctx, conn, append(tc.opts, grpc.OnFinish(func(err error) { finished <- err }))...)
				if err != nil {
					t.Fatal(err)
				}
				tc.end(st, conn, cancel)
				synctest.Wait()
				if len(finished) != 1 {
					t.Errorf("OnFinish ran %d times", len(finished))
				} else if err := <-finished; status.Code(err) != tc.code {
					t.Errorf("OnFinish(%v), want %v", err, tc.code)
				}
				cancel()
				synctest.Wait()
				if got := cluster.Counts(); got.InFlight != 0 || len(finished) != 0 {
					t.Errorf("%+v, OnFinish ran once more: %d", got, len(finished))
				}
			})
		}
	}
}

// TestOnFinish_OfAStreamThatCouldNotBeOpened: OnFinish runs even if the caller never calls Recv.
func TestOnFinish_OfAStreamThatCouldNotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true})
		conn := cluster.ClientT(t, hedging(configured(t, late)))
		cluster.Stop(0)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		finished := 0
		_, err := testpb.NewTestServiceClient(conn).ServerStream(ctx, &testpb.Request{}, grpc.OnFinish(func(err error) {
			if finished++; status.Code(err) != codes.Unavailable {
				t.Errorf("OnFinish(%v)", err)
			}
		}))
		if err != nil || finished != 0 {
			t.Fatalf("%v, OnFinish ran %d times: this is no stream that hedges may still save", err, finished)
		}
		cancel()
		synctest.Wait()
		if finished != 1 {
			t.Errorf("OnFinish ran %d times", finished)
		}
	})
}
