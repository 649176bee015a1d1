package stream_test

import (
	"context"
	"io"
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
)

// configured returns a scheduler for which ServerStream has this hedgingPolicy, and which does
// nothing else.
func configured(t testing.TB, policy string) *hedge.Scheduler {
	t.Helper()
	config := `{"methodConfig": [{"name": [{"service": "hedgetest.TestService", "method": "ServerStream"}],
		"hedgingPolicy": ` + policy + `}]}`
	return hedgetest.New(t, hedge.WithServiceConfig(config), hedge.WithBudgetPercent(400))
}

const (
	// policies of three attempts, 10 ms and 10 s apart, that take UNAVAILABLE for non-fatal
	soon = `{"maxAttempts": 3, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}`
	late = `{"maxAttempts": 3, "hedgingDelay": "10s", "nonFatalStatusCodes": ["UNAVAILABLE"]}`
)

func slow() testserver.Plan                        { return testserver.Plan{Delay: time.Hour} }
func delivers(after time.Duration) testserver.Plan { return testserver.Plan{Delay: after} }
func breaks(after time.Duration, code codes.Code, pushback ...string) testserver.Plan {
	return testserver.Plan{Delay: after, Code: code, Trailer: metadata.MD{"grpc-retry-pushback-ms": pushback}}
}

// TestGRPCDefinition_AStreamThatCannotBeOpened is one more attempt that fails.
func TestGRPCDefinition_AStreamThatCannotBeOpened(t *testing.T) {
	for _, tc := range []struct {
		code   codes.Code
		broken int // attempts that cannot be opened
		want   codes.Code
	}{
		{codes.Unavailable, 1, codes.OK},
		{codes.Unavailable, 2, codes.OK},
		{codes.Unavailable, 3, codes.Unavailable},
		{codes.Internal, 1, codes.Internal},
	} {
		synctest.Test(t, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true})
			opened := 0
			client := dial(t, cluster, configured(t, late),
				inside(func(_ *grpc.ClientConn, open opener) (grpc.ClientStream, error) {
					if opened++; opened <= tc.broken {
						return nil, status.Error(tc.code, "cannot be opened")
					}
					return open()
				}))
			req := &testpb.Request{Id: 7, Messages: 2}
			st, err := client.ServerStream(t.Context(), req)
			if err == nil {
				_, _, err = receive(st, req)
				_ = st.Trailer()
			}
			if status.Code(err) != tc.want || opened != min(tc.broken+1, 3) && tc.want == codes.OK {
				t.Errorf("%d broken: %v after %d attempts, want %v", tc.broken, err, opened, tc.want)
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
