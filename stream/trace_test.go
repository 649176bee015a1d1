package stream_test

import (
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// TestReport_OfStreams makes a stream that its hedge wins and one that needs none, asks for each what happened, and has the
// trace counted.
func TestReport_OfStreams(t *testing.T) {
	for _, headers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var sent, lost, decided atomic.Int64
			s := hedgetest.Fixed(t, 10*ms, hedge.WithTrace(&hedge.Trace{
				HedgeSent:   func(stats.HedgeSent) { sent.Add(1) },
				AttemptLost: func(e stats.AttemptLost) { lost.Add(int64(e.Ran)) },
				CallDecided: func(stats.CallDecided) { decided.Add(1) },
			}))
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: func(a testserver.Attempt) testserver.Plan {
				if a.Number == 0 && a.ID == 1 {
					return testserver.Plan{Delay: time.Hour}
				}
				return testserver.Plan{Delay: ms}
			}})
			client := dial(t, cluster, s)
			for id, want := range []stats.Outcome{{Attempts: 1, Delay: 10 * ms}, {Attempts: 2, Winner: 1, Delay: 10 * ms}} {
				var outcome stats.Outcome
				st, err := client.ServerStream(t.Context(), &testpb.Request{Id: uint64(id), Messages: 2}, hedge.Report(&outcome))
				if err != nil {
					t.Fatal(err)
				}
				if headers {
					_, err = st.Header()
				} else {
					_, err = st.Recv()
				}
				if err != nil || outcome != want {
					t.Errorf("%v, %+v, want %+v", err, outcome, want)
				}
				for err == nil {
					_, err = st.Recv()
				}
				if err != io.EOF {
					t.Error(err)
				}
			}
			synctest.Wait()
			if ran := time.Duration(lost.Load()); sent.Load() != 1 || decided.Load() != 1 || ran != 11*ms {
				t.Errorf("%d hedges sent, %d calls decided, losers ran %v", sent.Load(), decided.Load(), ran)
			}
		})
	}
}

// TestReport_OfABidirectionalStream is of a call that is never hedged.
func TestReport_OfABidirectionalStream(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{InMemory: true})
	conn := cluster.ClientT(t, hedging(hedgetest.Fixed(t, ms)))
	var outcome stats.Outcome
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	if _, err := conn.NewStream(t.Context(), desc, "/a/B", hedge.Report(&outcome)); err != nil {
		t.Fatal(err)
	}
	if want := (stats.Outcome{Attempts: 1, Reason: stats.NotServerStream}); outcome != want {
		t.Errorf("%+v", outcome)
	}
}
