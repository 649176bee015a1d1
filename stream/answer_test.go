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

// TestRule06_CallOptionsWithRejectedMessages lets one of two backends, or both, answer with a rejected reply over real connections. What the caller
// gets is of one attempt, which is at the other backend where that is better.
func TestRule06_CallOptionsWithRejectedMessages(t *testing.T) {
	for _, bothRejected := range []bool{false, true} {
		t.Run(fmt.Sprintf("both=%t", bothRejected), func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{Backends: 2, Script: func(a testserver.Attempt) testserver.Plan {
				md := metadata.Pairs("attempt", fmt.Sprint(a.Number))
				p := testserver.Plan{Messages: 5, PayloadBytes: 1, Header: md, Trailer: md}
				if a.Backend == 1 && !bothRejected {
					p.PayloadBytes = small
				}
				return p
			}})
			s := hedgetest.Fixed(t, time.Hour, hedge.WithAcceptable(goodIfLarge), hedge.WithGuard(false), hedge.WithMaxHedges(1))
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
				if messages != 5 || err != nil || outcome.Winner != attempt || outcome.Rejected != bothRejected {
					t.Errorf("%d messages of attempt %d, %v: %+v", messages, attempt, err, outcome)
				}
				seen, _ := st.Header()
				for _, md := range []metadata.MD{seen, header, st.Trailer(), trailer} {
					if got := md.Get("attempt"); len(got) != 1 || got[0] != fmt.Sprint(attempt) {
						t.Errorf("metadata of attempt %v, want %d", got, attempt)
					}
				}
				if n := finished.Load(); n != 1 || !bothRejected && from.Addr.String() != cluster.Address(1) {
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

// TestRule02_TheCallEndsWithARejectedMessageAtHand ends a connection, a server or a caller's context while the race waits for a better
// message. The caller gets the one at hand, then an error, and the stream is over.
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
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(plans...)})
				conn := cluster.ClientT(t, hedging(hedgetest.Fixed(t, 10*ms, hedge.WithAcceptable(goodIfLarge), hedge.WithGuard(false))))
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
				if err != nil || int(m.Attempt) != winner || time.Since(began) != 100*ms || outcome.Winner != winner || !outcome.Rejected {
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
		}
	}
}
