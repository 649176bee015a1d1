package stream_test

import (
	"context"
	"fmt"
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
	"github.com/grpchedge/hedge/stats"
)

// TestControl_RacesForHeaders counts calls whose race was for headers, and that ended with it: nothing tells of them later.
func TestControl_RacesForHeaders(t *testing.T) {
	const calls = 40
	for _, tc := range []struct {
		name    string
		primary testserver.Plan
		after   time.Duration // the caller gives up
	}{
		{"the caller gives up", slow(), 50 * ms},
		{"the stream is empty", testserver.Plan{Delay: 50 * ms, Empty: true}, time.Hour},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(tc.primary, slow())})
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithControl(50), hedge.WithGuard(false))
			client := dial(t, cluster, s)
			for id := range uint64(calls) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(tc.after, cancel) // no deadline, by which the server would end as well
				st, err := client.ServerStream(ctx, &testpb.Request{Id: id})
				if err != nil {
					t.Fatal(err)
				}
				if _, _ = st.Header(); ctx.Err() == nil {
					_, _ = st.Recv()
				}
				cancel()
			}
			row := s.Methods()[0]
			if got := row.Gain.Calls; row.Hedged == 0 || got != row.Hedged {
				t.Errorf("%d hedged calls are compared, of %d", got, row.Hedged)
			}
		})
	}
}

// TestHeaderBesideRecv_Commits: headers that come while Recv waits decide the call. They count as early, and a caller that then
// gives up teaches how long it has waited, and is no failure.
func TestHeaderBesideRecv_Commits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(testserver.Plan{HeaderAtOnce: true, Delay: time.Hour})})
		s := hedgetest.Fixed(t, 10*ms, hedgetest.Throttle(10, 0.1))
		client := dial(t, cluster, s)
		begin := func(timeout time.Duration) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(timeout, cancel) // no deadline, by which the server would end as well, with a failure of its own
			st, err := client.ServerStream(ctx, &testpb.Request{})
			if err != nil {
				t.Fatal(err)
			}
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

// TestRule01_APrimaryThatEndsAfterHeadersHaveDecided is for the race detector: nobody looks at a primary that still runs.
func TestRule01_APrimaryThatEndsAfterHeadersHaveDecided(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{InMemory: true})
	s := hedgetest.Fixed(t, ms, hedge.WithMaxHedges(1))
	first := true
	client := dial(t, cluster, s, grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		st, err := streamer(ctx, desc, cc, method, opts...)
		if first {
			st, first = emptyLater{st}, false
		}
		return st, err
	}))
	st, err := client.ServerStream(t.Context(), &testpb.Request{Messages: 1})
	if err != nil {
		t.Fatal(err)
	}
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

// TestReport_ClassOfAStreamThatHasEnded: what is reported of a stream is by its class, also if it ends before anybody waits.
func TestReport_ClassOfAStreamThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: func(a testserver.Attempt) testserver.Plan {
			return testserver.Plan{Delay: time.Duration(5+20*(a.ID%2)) * ms}
		}})
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Percentile(0.9)), hedge.WithClass(func(_ context.Context, _ string, m any) string {
			return fmt.Sprint(m.(*testpb.Request).Id % 2)
		}))
		client := dial(t, cluster, s)
		var o stats.Outcome
		for id := range uint64(101) {
			if id == 100 {
				time.Sleep(2 * time.Second)
			}
			st, err := client.ServerStream(t.Context(), &testpb.Request{Id: id, Messages: 1}, hedge.Report(&o))
			if err != nil {
				t.Fatal(err)
			}
			if id < 100 {
				_, _, _ = receive(st, &testpb.Request{Id: id, Messages: 1})
				continue
			}
			if !within(o.Delay, 5*ms, 0.1) {
				t.Errorf("reported %v", o.Delay)
			}
			_, _, _ = receive(st, &testpb.Request{Id: id, Messages: 1})
		}
	})
}
