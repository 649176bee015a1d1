package interceptor_test

import (
	"context"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
	"github.com/grpchedge/hedge/stream"
)

// TestRule07_FollowedLosers: losers that are followed run until they have answered, callers wait no longer for it, and what hedging has
// gained is measured. Each tenth primary takes 100 ms, all other attempts take 5 ms, and hedges are due after 10 ms.
func TestRule07_FollowedLosers(t *testing.T) {
	const calls = 300 // and so 30 losers
	for _, tc := range []struct {
		name      string
		percent   float64
		stream    bool
		deadline  time.Duration
		cancelled int64 // at the server; -1: that is up to chance
		unhedged  time.Duration
		measured  bool
	}{
		{name: "unary", percent: 100, unhedged: 100 * ms, measured: true},
		{name: "stream", percent: 100, stream: true, cancelled: calls / 10, unhedged: 100 * ms, measured: true},
		{name: "off", cancelled: calls / 10},
		{name: "off, streams", stream: true, cancelled: calls / 10},
		{name: "deadline", percent: 100, deadline: 50 * ms, cancelled: -1, unhedged: 50 * ms, measured: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: func(a testserver.Attempt) testserver.Plan {
					if a.Number == 0 && a.ID%10 == 0 {
						return testserver.Plan{Delay: 100 * ms, Interval: ms}
					}
					return testserver.Plan{Delay: 5 * ms, Interval: ms}
				}})
				s := hedgetest.Fixed(t, 10*ms, hedge.WithFollowUp(tc.percent), hedge.WithMaxHedges(1))
				conn := cluster.ClientT(t, grpc.WithUnaryInterceptor(interceptor.Unary(s)), grpc.WithStreamInterceptor(stream.Interceptor(s)))
				testserver.ConnectT(t, conn)
				client := testpb.NewTestServiceClient(conn)
				for id := range uint64(calls) {
					ctx, cancel := context.WithCancel(t.Context())
					if tc.deadline > 0 {
						ctx, cancel = context.WithTimeout(t.Context(), tc.deadline)
					}
					began, req := time.Now(), &testpb.Request{Id: id, Messages: 3}
					attempt := follow(ctx, t, client, tc.stream, req)
					cancel()
					if took := time.Since(began); took > 18*ms || attempt != 0 && id%10 > 0 {
						t.Errorf("call %d: attempt %d after %v", id, attempt, took)
					}
					req.Id = 1 << 60 // the caller uses its memory again
					time.Sleep(10 * ms)
				}
				time.Sleep(time.Second)
				if n := cluster.Counts().Cancelled; tc.cancelled >= 0 && n != tc.cancelled {
					t.Errorf("%d attempts are cancelled, want %d", n, tc.cancelled)
				}
				checkGain(t, s.Targets()[0].Gain, tc.measured, tc.unhedged)
			})
		})
	}
}

// follow makes a call and returns the number of the attempt that answered.
func follow(ctx context.Context, t *testing.T, client testpb.TestServiceClient, streams bool, req *testpb.Request) uint32 {
	t.Helper()
	if !streams {
		reply, err := client.Unary(ctx, req)
		if err != nil || reply.Id != req.Id {
			t.Fatal(reply, err)
		}
		return reply.Attempt
	}
	st, err := client.ServerStream(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	first, err := st.Recv()
	if err != nil || first.Id != req.Id {
		t.Fatal(first, err)
	}
	for err == nil {
		_, err = st.Recv()
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	return first.Attempt
}

// TestFollowUp_PoorAnswers: a loser whose answer turns out to be a poor one has not answered: a good one would have come later. Of
// 30 losers 28 are poor after 20 ms, the others good after 100 ms.
func TestFollowUp_PoorAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: func(a testserver.Attempt) testserver.Plan {
			switch {
			case a.Number > 0 || a.ID%10 > 0:
				return testserver.Plan{Delay: 5 * ms}
			case a.ID%150 > 0:
				return testserver.Plan{Delay: 20 * ms, PayloadBytes: 1}
			}
			return testserver.Plan{Delay: 100 * ms}
		}})
		good := func(_ context.Context, _ string, reply any, _ error) bool {
			return len(reply.(*testpb.Reply).GetPayload()) == 0
		}
		s := hedgetest.Fixed(t, 10*ms, hedge.WithFollowUp(100), hedge.WithMaxHedges(1), hedge.WithAnswer(good))
		conn := cluster.ClientT(t, hedgetest.Interceptors(s)...)
		testserver.ConnectT(t, conn)
		for id := range uint64(300) {
			follow(t.Context(), t, testpb.NewTestServiceClient(conn), false, &testpb.Request{Id: id})
			time.Sleep(10 * ms)
		}
		time.Sleep(time.Second)
		if g := s.Targets()[0].Gain; !g.Measured || g.Followed != 30 || g.Unhedged.Value < 97*ms || g.Unhedged.Value > 103*ms {
			t.Errorf("%+v", g)
		}
	})
}

func checkGain(t *testing.T, g stats.Gain, measured bool, unhedged time.Duration) {
	t.Helper()
	if !measured {
		if g != (stats.Gain{}) {
			t.Errorf("without follow-up: %+v", g)
		}
		return
	}
	about := func(got, want time.Duration) bool { return got > want*97/100 && got < want*103/100 }
	if !g.Measured || g.Followed != 30 || g.Calls != 300 || math.Abs(g.Load-0.1) > 1e-9 || !about(g.Unhedged.Value, unhedged) || !about(g.Hedged, 15*ms) ||
		!about(g.SavedPerHedge, unhedged-15*ms) || g.Helped < 0.0999 || g.SavedNothing > 1e-9 {
		t.Errorf("%+v", g)
	}
}
