package stream_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/grpchedge/hedge"
	_ "github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// small is the size of the payload in messages that are good.
const small = 100

// goodIfLarge accepts first messages with a payload, and no stream without messages.
func goodIfLarge(_ context.Context, _ string, reply any, err error) bool {
	r, ok := reply.(*testpb.Reply)
	return ok && len(r.Payload) >= small || err != nil && err != io.EOF
}

// TestRule02_PoorFirstMessages goes through streams whose first messages, or ends, are poor.
func TestRule02_PoorFirstMessages(t *testing.T) {
	good, poor := testserver.Plan{Messages: 4, PayloadBytes: small, Interval: 5 * ms}, testserver.Plan{Messages: 4, PayloadBytes: 1, Interval: 20 * ms}
	empty := testserver.Plan{Empty: true}
	fails := testserver.Plan{Code: codes.Unavailable}
	in := func(d time.Duration, p testserver.Plan) testserver.Plan {
		p.Delay = d
		return p
	}
	for _, tc := range []struct {
		name     string
		plans    []testserver.Plan
		attempt  int // whose messages the caller gets; -1: none
		messages int
		at       time.Duration // of the first message, or the end
		sent     int
		isPoor   bool
	}{
		{"good", []testserver.Plan{in(2*ms, good)}, 0, 4, 2 * ms, 1, false},
		{"a poor message sends the next hedge at once", []testserver.Plan{in(2*ms, poor), in(3*ms, good)}, 1, 4, 5 * ms, 2, false},
		{"so does a stream without messages", []testserver.Plan{in(2*ms, empty), in(3*ms, good)}, 1, 4, 5 * ms, 2, false},
		{"the first of poor ones is delivered", []testserver.Plan{in(2*ms, poor), in(3*ms, empty), in(4*ms, poor)}, 0, 4, 9 * ms, 3, true},
		{"a poor hedge waits for the primary", []testserver.Plan{in(30*ms, good), in(2*ms, poor), in(100*ms, good)}, 0, 4, 30 * ms, 3, false},
		{"a poor hedge replaces a failure", []testserver.Plan{in(30*ms, fails), in(2*ms, poor), in(3*ms, fails)}, 1, 4, 30 * ms, 3, true},
		{"an empty hedge replaces a failure", []testserver.Plan{in(30*ms, fails), in(2*ms, empty), in(3*ms, fails)}, -1, 0, 30 * ms, 3, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(tc.plans...)})
				s := hedgetest.Fixed(t, 10*ms, hedge.WithAnswer(goodIfLarge), hedge.WithGuard(false))
				client := dial(t, cluster, s)
				var outcome stats.Outcome
				began := time.Now()
				req := &testpb.Request{Id: 1}
				st, err := client.ServerStream(t.Context(), req, hedge.Report(&outcome))
				if err != nil {
					t.Fatal(err)
				}
				first, err := st.Recv()
				at := time.Since(began)
				if at.Truncate(ms) != tc.at || outcome.Poor != tc.isPoor || outcome.Attempts != tc.sent {
					t.Errorf("the first message came at %v: %+v; want %v, %d attempts, poor: %t", at, outcome, tc.at, tc.sent, tc.isPoor)
				}
				messages := 0
				for m := first; err == nil; m, err = st.Recv() {
					if int(m.Attempt) != tc.attempt || int(m.Sequence) != messages {
						t.Errorf("message %d is number %d of attempt %d, want %d", messages, m.Sequence, m.Attempt, tc.attempt)
					}
					messages++
				}
				if messages != tc.messages || err != io.EOF {
					t.Errorf("%d messages, %v, want %d", messages, err, tc.messages)
				}
				time.Sleep(time.Second) // until losers have ended
				for _, r := range cluster.Records() {
					loser := r.Number != tc.attempt && tc.plans[r.Number].Messages > 0
					if r.WasCancelled() != loser || !r.WasCancelled() && r.Ended.IsZero() {
						t.Errorf("attempt %d, a loser: %t: %+v", r.Number, loser, r)
					}
				}
			})
		})
	}
}

// TestRule06_CallOptionsWithPoorMessages lets one of two backends, or both, answer poorly over real connections. What the caller
// gets is of one attempt, which is at the other backend where that is better.
func TestRule06_CallOptionsWithPoorMessages(t *testing.T) {
	for _, bothPoor := range []bool{false, true} {
		t.Run(fmt.Sprintf("both=%t", bothPoor), func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{Backends: 2, Script: func(a testserver.Attempt) testserver.Plan {
				md := metadata.Pairs("attempt", fmt.Sprint(a.Number))
				p := testserver.Plan{Messages: 5, PayloadBytes: 1, Header: md, Trailer: md}
				if a.Backend == 1 && !bothPoor {
					p.PayloadBytes = small
				}
				return p
			}})
			s := hedgetest.Fixed(t, time.Hour, hedge.WithAnswer(goodIfLarge), hedge.WithGuard(false), hedge.WithMaxHedges(1))
			elsewhere := grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`)
			client := dial(t, cluster, s, elsewhere)
			for met := map[string]bool{}; len(met) < 2; { // until both are connected
				var at peer.Peer
				if _, err := client.Unary(t.Context(), &testpb.Request{Id: 1}, grpc.Peer(&at)); err != nil {
					t.Fatal(err)
				}
				met[at.Addr.String()] = true
			}
			for id := range uint64(20) {
				var from peer.Peer
				var outcome stats.Outcome
				var header, trailer metadata.MD
				var finished atomic.Int64
				req := &testpb.Request{Id: id + 1}
				st, err := client.ServerStream(t.Context(), req, grpc.Peer(&from), grpc.Header(&header), grpc.Trailer(&trailer),
					hedge.Report(&outcome), grpc.OnFinish(func(error) { finished.Add(1) }))
				if err != nil {
					t.Fatal(err)
				}
				messages, attempt, err := receive(st, req)
				if messages != 5 || err != nil || outcome.Winner != attempt || outcome.Poor != bothPoor {
					t.Errorf("%d messages of attempt %d, %v: %+v", messages, attempt, err, outcome)
				}
				seen, _ := st.Header()
				for _, md := range []metadata.MD{seen, header, st.Trailer(), trailer} {
					if got := md.Get("attempt"); len(got) != 1 || got[0] != fmt.Sprint(attempt) {
						t.Errorf("metadata of attempt %v, want %d", got, attempt)
					}
				}
				if n := finished.Load(); n != 1 || !bothPoor && from.Addr.String() != cluster.Address(1) {
					t.Errorf("finished %d times, from %v, want %s", n, from.Addr, cluster.Address(1))
				}
			}
			cluster.WaitIdleT(t)
			if n := s.Stats().SameBackend; n > 0 {
				t.Errorf("%d hedges went where the primary had gone", n)
			}
		})
	}
}

// TestRule02_TheCallEndsWithAPoorMessageAtHand ends a connection, a server or a caller's context while the race waits for a better
// message. The caller gets the one at hand, then an error, and the stream is over.
func TestRule02_TheCallEndsWithAPoorMessageAtHand(t *testing.T) {
	for name, end := range map[string]func(conn *grpc.ClientConn, cluster *testserver.Cluster, cancel func()){
		"the connection is closed": func(conn *grpc.ClientConn, _ *testserver.Cluster, _ func()) { _ = conn.Close() },
		"the server stops":         func(_ *grpc.ClientConn, cluster *testserver.Cluster, _ func()) { cluster.Close() },
		"the caller gives up":      func(_ *grpc.ClientConn, _ *testserver.Cluster, cancel func()) { cancel() },
		"the deadline passes":      nil,
	} {
		for winner := range 2 {
			t.Run(fmt.Sprintf("%s,attempt=%d", name, winner), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hangs := testserver.Plan{Ending: testserver.Hang}
					plans := []testserver.Plan{hangs, hangs, hangs}
					plans[winner] = testserver.Plan{Delay: 2 * ms, Messages: 5, After: 1, Ending: testserver.Hang}
					cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(plans...)})
					conn := cluster.ClientT(t, hedging(hedgetest.Fixed(t, 10*ms, hedge.WithAnswer(goodIfLarge), hedge.WithGuard(false))))
					testserver.ConnectT(t, conn)
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
					if err != nil || int(m.Attempt) != winner || time.Since(began) != 100*ms || outcome.Winner != winner || !outcome.Poor {
						t.Errorf("got %v, %v after %v: %+v", m, err, time.Since(began), outcome)
					}
					if _, err := st.Recv(); err == nil {
						t.Error("a message after the end")
					}
					synctest.Wait()
					if streamContext.Err() == nil || finished.Load() != 1 {
						t.Errorf("the context ended with %v, and OnFinish ran %d times", streamContext.Err(), finished.Load())
					}
					time.Sleep(time.Minute) // until losers have ended
				})
			})
		}
	}
}

// TestWaitForMessage_Poor lets Header wait for the first message, and a poor one is there when it returns the headers of the
// attempt whose message the caller then gets.
func TestWaitForMessage_Poor(t *testing.T) {
	good, poor := testserver.Plan{Messages: 3, PayloadBytes: small}, testserver.Plan{Messages: 3, PayloadBytes: 1}
	for _, tc := range []struct {
		name   string
		plans  []testserver.Plan
		winner int
		poor   bool
	}{
		{"a better one comes", []testserver.Plan{poor, good}, 1, false},
		{"none is better", []testserver.Plan{poor, poor}, 0, true},
		{"the hedge fails", []testserver.Plan{poor, {Code: codes.Unavailable}}, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for n := range tc.plans {
					tc.plans[n].Delay, tc.plans[n].HeaderAtOnce = 5*ms, true
					tc.plans[n].Header = metadata.Pairs("attempt", fmt.Sprint(n))
				}
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(tc.plans...)})
				s := hedgetest.Fixed(t, 20*ms, hedge.WithMaxHedges(1), hedge.WithAnswer(goodIfLarge), hedge.WithWaitForMessage("/*/*"))
				conn := cluster.ClientT(t, hedging(s))
				testserver.ConnectT(t, conn)
				var outcome stats.Outcome
				st, err := testpb.NewTestServiceClient(conn).ServerStream(t.Context(), &testpb.Request{Id: 1}, hedge.Report(&outcome))
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				md, err := st.Header()
				if err != nil || md.Get("attempt")[0] != fmt.Sprint(tc.winner) || time.Since(began) != 10*ms || outcome.Poor != tc.poor {
					t.Errorf("headers %v, %v after %v, %+v; want those of attempt %d after both", md, err, time.Since(began), outcome, tc.winner)
				}
				messages := 0
				for m, err := st.Recv(); err != io.EOF; m, err = st.Recv() {
					if err != nil || int(m.Attempt) != tc.winner || int(m.Sequence) != messages {
						t.Fatalf("message %d: %v, %v", messages, m, err)
					}
					messages++
				}
				if messages != 3 {
					t.Errorf("%d messages", messages)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}
