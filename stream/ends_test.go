package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

// TestRule08_AbandonedStreams ends streams in ways that no Recv reports. OnFinish runs once, and no
// attempt is left.
func TestRule08_AbandonedStreams(t *testing.T) {
	for _, tc := range []struct {
		does string // the caller, step by step
		code codes.Code
	}{
		{"sends too much", codes.ResourceExhausted},
		{"cancels", codes.Canceled},
		{"sends, cancels, receives", codes.Canceled},
		{"sends, waits, cancels", codes.Canceled},
		{"sends, asks for headers, cancels", codes.Canceled},
		{"sends, closes the connection", codes.Canceled},
		{"sends, closes the connection soon, receives", codes.Canceled},
		{"sends, sends", codes.Internal},
	} {
		for _, delay := range []time.Duration{0, 10 * ms} {
			hedgetest.Run(t, fmt.Sprintf("%s,delay=%v", tc.does, delay), func(t *testing.T) {
				cluster, conn := wired(t, hedgetest.FixedOrPlain(t, delay, hedge.WithMaxHedges(1)),
					testserver.Plan{HeaderAtOnce: true, Ending: testserver.Hang}, testserver.Plan{Ending: testserver.Hang})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var finished []codes.Code
				st, err := conn.NewStream(ctx, &testpb.TestService_ServiceDesc.Streams[0], method,
					grpc.MaxCallSendMsgSize(10), grpc.OnFinish(func(err error) { finished = append(finished, status.Code(err)) }))
				if err != nil {
					t.Fatal(err)
				}
				for _, step := range strings.Split(tc.does, ", ") {
					switch step {
					case "sends":
						_ = errors.Join(st.SendMsg(&testpb.Request{Id: 1}), st.CloseSend())
					case "sends too much":
						_ = st.SendMsg(&testpb.Request{Payload: make([]byte, 100)})
					case "waits":
						time.Sleep(time.Second)
					case "asks for headers":
						_, _ = st.Header()
					case "receives":
						_ = st.RecvMsg(new(testpb.Reply))
					case "cancels":
						cancel()
						synctest.Wait()
					case "closes the connection":
						_ = conn.Close()
					case "closes the connection soon":
						time.AfterFunc(100*ms, func() { _ = conn.Close() })
					}
				}
				synctest.Wait()
				if !slices.Equal(finished, []codes.Code{tc.code}) {
					t.Errorf("OnFinish ran with %v, want %v", finished, tc.code)
				}
				cancel()
				synctest.Wait()
				if got := cluster.Counts(); got.InFlight != 0 || len(finished) != 1 {
					t.Errorf("%+v, OnFinish ran with %v", got, finished)
				}
			})
		}
	}
}

// TestOnFinish_OfAStreamThatCouldNotBeOpened: OnFinish runs even if the caller never calls Recv.
func TestOnFinish_OfAStreamThatCouldNotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true})
		conn := cluster.ClientT(t, hedging(hedgetest.New(t, policy)))
		cluster.Stop(0)
		ctx, cancel := context.WithCancel(t.Context())
		var finished []codes.Code
		_, err := testpb.NewTestServiceClient(conn).ServerStream(ctx, &testpb.Request{}, grpc.OnFinish(func(err error) {
			finished = append(finished, status.Code(err))
		}))
		if err != nil || len(finished) > 0 {
			t.Fatalf("%v, OnFinish ran with %v: hedges cannot save this stream", err, finished)
		}
		cancel()
		synctest.Wait()
		if !slices.Equal(finished, []codes.Code{codes.Unavailable}) {
			t.Errorf("OnFinish ran with %v", finished)
		}
	})
}

// TestRule08_AConnectionThatIsClosedAsAStreamOpens is for the race detector: gRPC ends the stream
// on another goroutine, before the interceptor has it.
func TestRule08_AConnectionThatIsClosedAsAStreamOpens(t *testing.T) {
	for n, name := range []string{"primary", "hedge"} {
		hedgetest.Run(t, name, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(slow(), slow())})
			opened := 0
			closing := inside(func(cc *grpc.ClientConn, open opener) (grpc.ClientStream, error) {
				st, err := open()
				if opened++; opened == n+1 {
					_ = cc.Close()
					time.Sleep(ms)
				}
				return st, err
			})
			client := dial(t, cluster, hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), closing)
			var header metadata.MD
			st, err := client.ServerStream(t.Context(), &testpb.Request{}, grpc.Header(&header))
			if err == nil {
				_, err = st.Recv()
			}
			if err == nil || st != nil && st.Context().Err() == nil {
				t.Errorf("%v although the connection is closed", err)
			}
		})
	}
}

// TestRule04_ContextBeforeTheFirstMessage: the context of a stream without a waiting RecvMsg has
// the deadline of the service config, and ends by it, or with the stream, as with plain gRPC.
func TestRule04_ContextBeforeTheFirstMessage(t *testing.T) {
	timeout := grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "timeout": "0.2s"}]}`)
	for _, delay := range []time.Duration{0, time.Hour, 10 * ms} {
		hedgetest.Run(t, delay.String(), func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true,
				Script: func(a testserver.Attempt) testserver.Plan {
					if a.ID == 0 {
						return slow()
					}
					return delivers(time.Duration(20-20*a.Number) * ms)
				}})
			s := hedgetest.FixedOrPlain(t, delay, hedge.WithMaxHedges(1))
			client, began := dial(t, cluster, s, timeout), time.Now()
			ctx := open(t.Context(), t, client, &testpb.Request{}).Context()
			child, cancel := context.WithTimeout(context.WithValue(ctx, t, 0), time.Hour)
			defer cancel()
			deadline, _ := ctx.Deadline()
			if <-child.Done(); !deadline.Equal(began.Add(200*ms)) || time.Since(began) != 200*ms ||
				ctx.Err() != context.DeadlineExceeded || child.Err() != ctx.Err() || context.Cause(child) != ctx.Err() {
				t.Errorf("ends after %v by %v, its child by %v; deadline %v", time.Since(began), ctx.Err(), child.Err(), deadline)
			}
			st := open(t.Context(), t, client, &testpb.Request{Id: 1, Messages: 1})
			ctx = st.Context()
			_, err := st.Recv()
			alive := ctx.Err()
			if _, end := st.Recv(); err != nil || alive != nil || end != io.EOF || ctx.Err() != context.Canceled {
				t.Errorf("%v, %v; then %v, %v", err, alive, end, ctx.Err())
			}
			ctx, cancel = context.WithTimeout(t.Context(), 100*ms)
			defer cancel()
			began = time.Now()
			if <-open(ctx, t, client, &testpb.Request{}).Context().Done(); time.Since(began) != 100*ms {
				t.Errorf("ends %v after a caller whose deadline is 100 ms", time.Since(began))
			}
		})
	}
}

// TestRule04_ContextOutlivesALoser: the context of a stream lives as long as the stream, even if the
// connection of another attempt is closed: of a hedge that has not answered, or of the primary.
func TestRule04_ContextOutlivesALoser(t *testing.T) {
	three := testserver.Plan{Delay: 50 * ms, Messages: 3, Interval: 10 * ms, After: 3, Ending: testserver.Hang}
	hangs := testserver.Plan{Ending: testserver.Hang}
	for _, tc := range []struct {
		name        string
		here, there testserver.Plan
		closesHere  bool
	}{
		{"of the hedge", three, hangs, false},
		{"of the primary", hangs, three, true},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			start := func(p testserver.Plan) *testserver.Cluster {
				return testserver.StartT(t, testserver.Config{InMemory: true,
					Script: func(testserver.Attempt) testserver.Plan { return p }})
			}
			far := start(tc.there).ClientT(t)
			near := start(tc.here).ClientT(t, grpc.WithStreamInterceptor(stream.Interceptor(
				hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), far)))
			testserver.ConnectT(t, far)
			testserver.ConnectT(t, near)
			st := open(t.Context(), t, testpb.NewTestServiceClient(near), &testpb.Request{})
			ctx, closed := st.Context(), far
			if tc.closesHere {
				closed = near
			}
			time.AfterFunc(30*ms, func() { _ = closed.Close() })
			for range 3 {
				if _, err := st.Recv(); err != nil || ctx.Err() != nil {
					t.Fatalf("%v under a context with %v", err, ctx.Err())
				}
			}
			_ = errors.Join(near.Close(), far.Close())
			synctest.Wait()
			if ctx.Err() == nil {
				t.Error("the stream has ended, and its context has not")
			}
		})
	}
}
