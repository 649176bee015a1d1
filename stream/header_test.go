package stream_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// TestWaitForMessage asks for headers first, which come at once, in streams with a late first
// message of the primary. With a hedgingPolicy, headers, or the end of a stream without headers,
// always commit the call, whether the caller asks for them or not.
func TestWaitForMessage(t *testing.T) {
	waits := hedge.WithWaitForMessage("/*/*")
	judged := []hedge.Option{waits, hedge.WithAcceptable(goodIfLarge)}
	rejected, good := testserver.Plan{Delay: 5 * ms, PayloadBytes: 1}, testserver.Plan{Delay: 5 * ms, PayloadBytes: small}
	headersFirst := testserver.Plan{HeaderAtOnce: true, Delay: 200 * ms}
	for _, tc := range []struct {
		name     string
		options  []hedge.Option
		plans    []testserver.Plan
		header   time.Duration
		winner   int // -1: no message
		code     codes.Code
		at       time.Duration
		early    int64
		rejected bool
		sent     []time.Duration // with a hedgingPolicy
	}{
		{name: "by default headers decide", plans: []testserver.Plan{{Delay: 500 * ms}, {}}, at: 500 * ms, early: 1},
		{name: "of another method too", options: []hedge.Option{hedge.WithWaitForMessage("/a/B")},
			plans: []testserver.Plan{{Delay: 500 * ms}, {}}, at: 500 * ms, early: 1},
		{name: "the hedge wins", options: []hedge.Option{hedge.WithWaitForMessage("/a/B", "/*/Server*")},
			plans: []testserver.Plan{{Delay: 500 * ms}, {Delay: ms}}, header: 11 * ms, winner: 1, at: 11 * ms},
		{name: "the primary wins", options: []hedge.Option{waits},
			plans: []testserver.Plan{{Delay: 30 * ms}, {Delay: 50 * ms}}, header: 30 * ms, at: 30 * ms},
		{name: "the primary is empty", options: []hedge.Option{waits}, plans: []testserver.Plan{{Delay: 30 * ms,
			Empty: true}, {Delay: 50 * ms}}, header: 30 * ms, winner: -1, at: 30 * ms},
		{name: "the hedge is empty", options: []hedge.Option{waits},
			plans: []testserver.Plan{{Delay: 500 * ms}, {Empty: true}}, header: 10 * ms, winner: -1, at: 10 * ms},
		{name: "both fail", options: []hedge.Option{waits}, plans: []testserver.Plan{{Delay: 30 * ms, Code: codes.Internal},
			{Delay: 40 * ms, Code: codes.Unavailable}}, header: 50 * ms, winner: -1, code: codes.Internal, at: 50 * ms},
		{name: "a better one comes than a rejected one", options: judged, plans: []testserver.Plan{rejected, good},
			header: 10 * ms, winner: 1, at: 10 * ms},
		{name: "none is better", options: judged, plans: []testserver.Plan{rejected, rejected}, header: 10 * ms,
			at: 10 * ms, rejected: true},
		{name: "none is better, as the hedge fails", options: judged, plans: []testserver.Plan{rejected,
			{Delay: 5 * ms, Code: codes.Unavailable}}, header: 10 * ms, at: 10 * ms, rejected: true},
		{name: "a message comes after a rejected end", options: judged,
			plans: []testserver.Plan{{Delay: 5 * ms, Empty: true}, good}, header: 10 * ms, winner: 1, at: 10 * ms},
		{name: "none is better than a rejected end", options: judged, plans: []testserver.Plan{{Delay: 5 * ms, Empty: true},
			{Delay: 5 * ms, Code: codes.Unavailable}}, header: 10 * ms, winner: -1, at: 10 * ms, rejected: true},
		{name: "headers are not judged", options: judged[1:],
			plans: []testserver.Plan{{Delay: 500 * ms, PayloadBytes: 1}, good}, at: 500 * ms, early: 1},
		{name: "policy: headers commit the call", plans: []testserver.Plan{headersFirst}, at: 200 * ms, early: 1,
			sent: []time.Duration{0}},
		{name: "policy: also those of a hedge", plans: []testserver.Plan{slow(), headersFirst}, header: 10 * ms, winner: 1,
			at: 210 * ms, early: 1, sent: []time.Duration{0, 10 * ms}},
		{name: "policy: an empty stream is an OK", plans: []testserver.Plan{slow(), {Delay: 3 * ms, Empty: true}},
			header: 13 * ms, winner: -1, at: 13 * ms, sent: []time.Duration{0, 10 * ms}},
		{name: "policy: a non-fatal status sends the next hedge",
			plans:  []testserver.Plan{breaks(3*ms, codes.Unavailable), breaks(2*ms, codes.Unavailable, "1"), delivers(ms)},
			header: 7 * ms, winner: 2, at: 7 * ms, sent: []time.Duration{0, 3 * ms, 6 * ms}},
	} {
		for _, asks := range []bool{true, false}[:min(1+len(tc.sent), 2)] {
			hedgetest.Run(t, fmt.Sprintf("%s,asks=%t", tc.name, asks), func(t *testing.T) {
				options := append(tc.options, hedge.WithMaxHedges(1))
				for n := range tc.plans {
					if tc.sent == nil {
						tc.plans[n].HeaderAtOnce, tc.plans[n].Header = true, metadata.Pairs("attempt", fmt.Sprint(n))
					}
				}
				if tc.sent != nil {
					options = []hedge.Option{policy}
				}
				s := hedgetest.Fixed(t, 10*ms, options...)
				cluster, client := inMemory(t, s, tc.plans...)
				began, finished := time.Now(), 0
				req := &testpb.Request{Id: 1, Messages: 3}
				var outcome stats.Outcome
				st := open(t.Context(), t, client, req, hedge.Report(&outcome), grpc.OnFinish(func(error) { finished++ }))
				if asks {
					md, err := st.Header()
					if err != nil || time.Since(began) != tc.header ||
						tc.sent == nil && tc.winner >= 0 && md.Get("attempt")[0] != fmt.Sprint(tc.winner) {
						t.Errorf("headers %v, %v after %v, want them after %v", md, err, time.Since(began), tc.header)
					}
				}
				n, attempt, err := receive(st, req)
				if attempt != tc.winner || status.Code(err) != tc.code || n != 3 && tc.winner >= 0 ||
					time.Since(began) != tc.at || outcome.Rejected != tc.rejected {
					t.Errorf("%d messages of %d, %v after %v, %+v, want those of %d, %v after %v", n, attempt, err,
						time.Since(began), outcome, tc.winner, tc.code, tc.at)
				}
				synctest.Wait()
				if got := s.Stats(); got.EarlyHeaders != tc.early || cluster.Counts().InFlight != 0 || finished != 1 {
					t.Errorf("%+v, %+v, OnFinish ran %d times", got, cluster.Counts(), finished)
				}
				for i, r := range cluster.Records() {
					if tc.sent != nil && (len(cluster.Records()) != len(tc.sent) || r.Arrival.Sub(began) != tc.sent[i]) {
						t.Errorf("attempt %d was sent after %v, want %v", i, r.Arrival.Sub(began), tc.sent)
					}
				}
			})
		}
	}
}

// TestEarlyHeaders: a method with calls that headers decide has nothing to gain, as long as they
// do.
func TestEarlyHeaders(t *testing.T) {
	for _, dry := range []bool{false, true} {
		hedgetest.Run(t, fmt.Sprintf("dry=%v", dry), func(t *testing.T) {
			s := hedgetest.All(t, hedge.WithDryRun(dry))
			cluster, client := inMemory(t, s)
			cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
				if a.ID%50 == 0 && a.Number == 0 {
					return testserver.Plan{HeaderAtOnce: true, Delay: time.Second}
				}
				return testserver.Plan{HeaderAtOnce: true, Delay: 10 * ms}
			})
			for _, asks := range []bool{true, false} { // for headers
				for id := range uint64(500) {
					req := &testpb.Request{Id: id, Messages: 1}
					st := open(t.Context(), t, client, req)
					if asks {
						_, _ = st.Header()
					}
					if n, _, err := receive(st, req); n != 1 || err != nil {
						t.Fatalf("%d messages, %v", n, err)
					}
					synctest.Wait()
				}
				row := s.Methods()[0]
				c, hedges := row.Choice, map[bool]int64{false: row.Hedges, true: row.DryRun}[dry]
				if row.P50 == 0 || row.EarlyHeaders != 500 || (hedges == 0) != asks || dry && (row.Forecasts == nil) != asks ||
					!dry && (row.Unhedgeable == stats.EarlyHeaders) != asks ||
					!dry && asks && (c.PredictedTail != c.UnhedgedTail || c.PredictedLoad != 0) {
					t.Errorf("asks for headers %t: %+v", asks, row)
				}
			}
		})
	}
}

// small is the size of the payload in messages that are good.
const small = 100

// goodIfLarge accepts first messages with a payload, and no stream without messages.
func goodIfLarge(_ context.Context, _ string, reply any, err error) bool {
	r, ok := reply.(*testpb.Reply)
	return ok && len(r.Payload) >= small || err != nil && err != io.EOF
}

// TestRule02_TheCallEndsWithARejectedMessageAtHand ends a connection, a server or a caller's
// context while the race waits for a better message. The caller gets the one at hand, then an
// error, and the stream is over.
func TestRule02_TheCallEndsWithARejectedMessageAtHand(t *testing.T) {
	for name, end := range map[string]func(conn *grpc.ClientConn, cluster *testserver.Cluster, cancel func()){
		"the connection is closed": func(conn *grpc.ClientConn, _ *testserver.Cluster, _ func()) { _ = conn.Close() },
		"the server stops":         func(_ *grpc.ClientConn, cluster *testserver.Cluster, _ func()) { cluster.Close() },
		"the caller gives up":      func(_ *grpc.ClientConn, _ *testserver.Cluster, cancel func()) { cancel() },
		"the deadline passes":      nil,
	} {
		for winner := range 2 {
			hedgetest.Run(t, fmt.Sprintf("%s,attempt=%d", name, winner), func(t *testing.T) {
				hangs := testserver.Plan{Ending: testserver.Hang}
				plans := []testserver.Plan{hangs, hangs, hangs}
				plans[winner] = testserver.Plan{Delay: 2 * ms, Messages: 5, After: 1, Ending: testserver.Hang}
				cluster, conn := wired(t, hedgetest.Fixed(t, 10*ms, hedge.WithAcceptable(goodIfLarge), hedge.WithGuard(false)),
					plans...)
				ctx, cancel := context.WithCancel(t.Context())
				if end == nil {
					ctx, cancel = context.WithTimeout(ctx, 100*ms)
				}
				defer cancel()
				var outcome stats.Outcome
				var finished atomic.Int64
				st, err := testpb.NewTestServiceClient(conn).ServerStream(ctx, &testpb.Request{Id: 1}, hedge.Report(&outcome),
					grpc.OnFinish(func(error) { finished.Add(1) }))
				if err != nil {
					t.Fatal(err)
				}
				streamContext, began := st.Context(), time.Now()
				if end != nil {
					time.AfterFunc(100*ms, func() { end(conn, cluster, cancel) })
				}
				m, err := st.Recv()
				_, over := st.Recv()
				if err != nil || int(m.Attempt) != winner || time.Since(began) != 100*ms || outcome.Winner != winner ||
					!outcome.Rejected || over == nil {
					t.Errorf("got %v, %v after %v: %+v; then %v", m, err, time.Since(began), outcome, over)
				}
				synctest.Wait()
				if streamContext.Err() == nil || finished.Load() != 1 {
					t.Errorf("the context ended with %v, and OnFinish ran %d times", streamContext.Err(), finished.Load())
				}
				time.Sleep(time.Minute) // until losers have ended
			})
		}
	}
}

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
		{name: "in flight", hedge: slow(), into: new(testpb.Reply), want: stats.Outcome{Attempts: 2, Delay: 10 * ms}},
		{name: "failed", hedge: breaks(0, codes.Internal), into: new(testpb.Reply),
			want: stats.Outcome{Attempts: 2, Delay: 10 * ms}},
		{name: "considered", hedge: slow(), opts: []hedge.Option{hedge.WithBudgetPercent(1), hedge.WithTrace(&hedge.Trace{
			HedgeHeldBack: func(stats.HedgeHeldBack) { time.Sleep(20 * ms) },
		})}, into: new(testpb.Reply), want: stats.Outcome{Attempts: 1, Delay: 10 * ms, Reason: stats.BudgetExhausted}},
		{name: "not replayable", hedge: slow(), into: new(any),
			want: stats.Outcome{Attempts: 1, Reason: stats.NotReplayable}},
		{name: "Header waits for a message", hedge: delivers(20 * ms),
			opts: []hedge.Option{hedge.WithWaitForMessage(method)}, into: new(testpb.Reply),
			want: stats.Outcome{Attempts: 2, Winner: 1, Delay: 10 * ms}},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			_, conn := wired(t, hedgetest.Fixed(t, 10*ms, append(tc.opts, hedge.WithMaxHedges(1))...),
				testserver.Plan{HeaderAtOnce: true, Delay: 100 * ms}, tc.hedge)
			for n := range 2 { // a budget pays for one hedge
				var outcome stats.Outcome
				st := request(t, conn, hedge.Report(&outcome))
				var received sync.WaitGroup
				received.Go(func() { _ = st.RecvMsg(tc.into) })
				time.Sleep(20 * ms)
				if _, err := st.Header(); err != nil || n > 0 && outcome != tc.want {
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
			st, first = emptyOnceLost{st}, false
		}
		return st, err
	}))
	st := open(t.Context(), t, client, &testpb.Request{Messages: 1})
	if _, err := st.Header(); err != nil {
		t.Error(err)
	}
	if _, by, err := receive(st, &testpb.Request{Messages: 1}); err != nil || by != 1 {
		t.Errorf("the message is of attempt %d, %v; want the hedge's", by, err)
	}
}

// emptyOnceLost is a stream without headers that ends when it is canceled, without a message.
type emptyOnceLost struct{ grpc.ClientStream }

func (emptyOnceLost) Header() (metadata.MD, error) { return nil, nil }

func (e emptyOnceLost) RecvMsg(any) error {
	<-e.Context().Done()
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
