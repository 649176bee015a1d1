package stream_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
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
				var received sync.WaitGroup
				received.Go(func() { _ = st.RecvMsg(tc.into) })
				time.Sleep(20 * ms)
				if _, err = st.Header(); err != nil || n > 0 && outcome != tc.want {
					t.Errorf("%v, reported %+v", err, outcome)
				}
				received.Wait()
			}
		})
	}
}

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
			var asked sync.WaitGroup
			asked.Go(func() {
				time.Sleep(ms)
				_, _ = st.Header()
			})
			if _, err := st.Recv(); err == nil {
				t.Error("a message")
			}
			asked.Wait()
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

// TestRule06_VariablesOfAStreamThatIsCancelled: when Recv returns the cancellation of a stream, the
// variables are filled and final, although gRPC may call OnFinish later, on another goroutine.
func TestRule06_VariablesOfAStreamThatIsCancelled(t *testing.T) {
	late := inside(func(_ *grpc.ClientConn, open opener) (grpc.ClientStream, error) {
		return open(grpc.OnFinish(func(error) { time.Sleep(5 * ms) }))
	})
	for _, delay := range []time.Duration{0, time.Hour, 10 * ms} { // plain gRPC, of a primary, of a hedge
		hedgetest.Run(t, delay.String(), func(t *testing.T) {
			hangs := testserver.Plan{Header: metadata.Pairs("from", "server"), After: 1, Ending: testserver.Hang}
			plans := []testserver.Plan{hangs}
			if delay == 10*ms {
				plans = []testserver.Plan{slow(), hangs}
			}
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(plans...)})
			client := dial(t, cluster, hedgetest.FixedOrPlain(t, delay, hedge.WithMaxHedges(1)), late)
			for range 20 { // either goroutine may be the first to see the end
				ctx, cancel := context.WithCancel(t.Context())
				var header, trailer metadata.MD
				var to peer.Peer
				st := open(ctx, t, client, &testpb.Request{Messages: 2}, grpc.Header(&header), grpc.Trailer(&trailer),
					grpc.Peer(&to))
				if _, err := st.Recv(); err != nil {
					t.Error(err)
				}
				time.AfterFunc(ms/10, cancel)
				if _, err := st.Recv(); err == nil || header.Get("from") == nil || trailer.Len() > 0 || to.Addr == nil {
					t.Errorf("%v: header %v, trailer %v, peer %v", err, header, trailer, to.Addr)
				}
				time.Sleep(10 * ms)
			}
		})
	}
}

// slowHeader is a stream with a Header that returns just after the call was canceled.
type slowHeader struct{ grpc.ClientStream }

func (s slowHeader) Header() (metadata.MD, error) {
	header, err := s.ClientStream.Header()
	<-s.Context().Done()
	return header, err
}

// TestRule06_VariablesBesideHeader is for the race detector: Header decides the call while Recv
// returns how it has ended.
func TestRule06_VariablesBesideHeader(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{InMemory: true,
		Script: testserver.ByNumber(testserver.Plan{HeaderAtOnce: true, Ending: testserver.Hang})})
	slow := inside(func(_ *grpc.ClientConn, open opener) (grpc.ClientStream, error) {
		st, err := open()
		return slowHeader{st}, err
	})
	client := dial(t, cluster, hedgetest.Fixed(t, time.Hour), slow)
	for range longtest.Size(500, 5000) {
		ctx, cancel := context.WithCancel(t.Context())
		var to peer.Peer
		st := open(ctx, t, client, &testpb.Request{}, grpc.Peer(&to))
		var asked sync.WaitGroup
		asked.Go(func() { _, _ = st.Header() })
		time.AfterFunc(ms/10, cancel)
		if _, err := st.Recv(); err == nil || to.Addr == nil {
			t.Errorf("%v, from %v", err, to.Addr)
		}
		asked.Wait()
	}
}
