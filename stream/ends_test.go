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

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestHeaderBesideRecv_Commits: headers that come while Recv waits decide the call. They count as
// early, and a caller that then gives up teaches how long it has waited, and is no failure.
func TestHeaderBesideRecv_Commits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.Fixed(t, 10*ms, hedgetest.Throttle(10, 0.1))
		cluster, client := inMemory(t, s, testserver.Plan{HeaderAtOnce: true, Delay: time.Hour})
		begin := func(timeout time.Duration) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(timeout, cancel) // no deadline: the server would fail by it
			st := open(ctx, t, client, &testpb.Request{})
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				time.Sleep(ms)
				_, _ = st.Header()
			}()
			if _, err := st.Recv(); err == nil {
				t.Error("a message")
			}
			<-asked
		}
		begin(100 * ms)
		cluster.SetScript(func(testserver.Attempt) testserver.Plan {
			return testserver.Plan{HeaderAtOnce: true, Delay: 40 * ms, Code: codes.NotFound}
		})
		begin(time.Hour)
		if row := s.Methods()[0]; row.EarlyHeaders != 2 || !within(row.P99, 100*ms, 0.03) || row.ThrottleTokens != 10 {
			t.Errorf("%d early headers, P99 %v, %v tokens", row.EarlyHeaders, row.P99, row.ThrottleTokens)
		}
	})
}

// TestRule01_APrimaryThatEndsAfterHeadersHaveDecided is for the race detector: no goroutine looks
// at a primary that still runs.
func TestRule01_APrimaryThatEndsAfterHeadersHaveDecided(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{InMemory: true})
	s := hedgetest.Fixed(t, ms, hedge.WithMaxHedges(1))
	first := true
	client := dial(t, cluster, s, inside(func(_ *grpc.ClientConn, open opener) (grpc.ClientStream, error) {
		st, err := open()
		if first {
			st, first = emptyLater{st}, false
		}
		return st, err
	}))
	st := open(t.Context(), t, client, &testpb.Request{Messages: 1})
	if _, err := st.Header(); err != nil {
		t.Error(err)
	}
	if _, by, err := receive(st, &testpb.Request{Messages: 1}); err != nil || by != 1 {
		t.Errorf("by %d, %v", by, err)
	}
}

// emptyLater is a stream without headers that ends after 50 ms, without a message.
type emptyLater struct{ grpc.ClientStream }

func (emptyLater) Header() (metadata.MD, error) { return nil, nil }

func (e emptyLater) RecvMsg(any) error {
	time.Sleep(50 * ms)
	return io.EOF
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
				t.Errorf("%v, although the connection is closed", err)
			}
		})
	}
}
