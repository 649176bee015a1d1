package interceptor_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

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
	const calls = 300 // and so 30 losers, the last of which is the last call: from then on fewer calls are drawn
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
					if a.Number == 0 && a.ID%10 == 9 {
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
					if took := time.Since(began); took > 18*ms || attempt != 0 && id%10 != 9 {
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
// 30 losers 28 are poor after 20 ms, the others good after 100 ms. Callers cancel their contexts when they have their answers.
func TestFollowUp_PoorAnswers(t *testing.T) {
	for name, poor := range map[string]testserver.Plan{
		"replies": {Delay: 20 * ms, PayloadBytes: 1}, "statuses": {Delay: 20 * ms, Code: codes.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: func(a testserver.Attempt) testserver.Plan {
					switch {
					case a.Number > 0 || a.ID%10 > 0:
						return testserver.Plan{Delay: 5 * ms}
					case a.ID%150 > 0:
						return poor
					}
					return testserver.Plan{Delay: 100 * ms}
				}})
				good := func(_ context.Context, _ string, reply any, err error) bool {
					return err == nil && len(reply.(*testpb.Reply).GetPayload()) == 0
				}
				s := hedgetest.Fixed(t, 10*ms, hedge.WithFollowUp(100), hedge.WithMaxHedges(1), hedge.WithAnswer(good))
				conn := cluster.ClientT(t, hedgetest.Interceptors(s)...)
				testserver.ConnectT(t, conn)
				for id := range uint64(300) {
					ctx, cancel := context.WithCancel(t.Context())
					follow(ctx, t, testpb.NewTestServiceClient(conn), false, &testpb.Request{Id: id})
					cancel()
					time.Sleep(10 * ms)
				}
				time.Sleep(time.Second)
				if g := s.Targets()[0].Gain; !g.Measured || g.Followed != 30 || g.Unhedged.Value < 97*ms || g.Unhedged.Value > 103*ms {
					t.Errorf("%+v", g)
				}
			})
		})
	}
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

// TestRule07_FollowedLosersAreFew: a followed loser takes no stream that callers need. One primary in 20 stalls for 30 s. A caller whose calls
// are hedged makes them one after the other, so that without hedging it would hold one stream. The server allows two. Another caller,
// whose calls are not hedged and never stall, must not wait.
func TestRule07_FollowedLosersAreFew(t *testing.T) {
	for name, hedged := range map[string]bool{"plain": false, "hedged": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Backends: 3, Script: func(a testserver.Attempt) testserver.Plan {
					if a.Number == 0 && a.ID%40 == 1 {
						return testserver.Plan{Delay: 30 * time.Second}
					}
					return testserver.Plan{Delay: 5 * ms}
				}, ServerOptions: []grpc.ServerOption{grpc.MaxConcurrentStreams(2)}})
				dial := []grpc.DialOption{grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`)}
				if hedged {
					dial = append(dial, hedgetest.Interceptors(hedgetest.All(t))...)
				}
				conn := cluster.ClientT(t, dial...)
				testserver.ConnectT(t, conn)
				client, stop := testpb.NewTestServiceClient(conn), time.Now().Add(15*time.Second)
				longest := func(id uint64, pause time.Duration, opts ...grpc.CallOption) (d time.Duration) {
					for ; time.Now().Before(stop); id += 2 {
						began := time.Now()
						if _, err := client.Unary(t.Context(), &testpb.Request{Id: id}, opts...); err != nil {
							t.Error(err)
						}
						d = max(d, time.Since(began))
						time.Sleep(pause)
					}
					return d
				}
				var all sync.WaitGroup
				all.Go(func() {
					if d := longest(3, 0); d > time.Second && hedged {
						t.Errorf("a hedged call takes %v", d)
					}
				})
				all.Go(func() {
					if d := longest(2, 20*ms, hedge.Off()); d > 5*ms {
						t.Errorf("a call of the other caller takes %v", d)
					}
				})
				all.Wait()
			})
		})
	}
}

// TestFollowUp_APoorHedge: a slow primary whose first hedge answered poorly and whose second one won counts, drawn or not.
func TestFollowUp_APoorHedge(t *testing.T) {
	for _, percent := range []float64{100, 0.0001} {
		synctest.Test(t, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: func(a testserver.Attempt) testserver.Plan {
				return testserver.Plan{Delay: []time.Duration{time.Second, 5 * ms, 5 * ms}[a.Number], PayloadBytes: int(a.Number) % 2}
			}})
			good := func(_ context.Context, _ string, reply any, err error) bool {
				return err == nil && len(reply.(*testpb.Reply).GetPayload()) == 0
			}
			s := hedgetest.Fixed(t, 10*ms, hedge.WithFollowUp(percent), hedge.WithMaxHedges(2), hedge.WithAnswer(good))
			conn := cluster.ClientT(t, hedgetest.Interceptors(s)...)
			testserver.ConnectT(t, conn)
			for range 20 {
				follow(t.Context(), t, testpb.NewTestServiceClient(conn), false, &testpb.Request{})
			}
			time.Sleep(time.Minute)
			if g := s.Targets()[0].Gain; g.Calls != 20 {
				t.Errorf("%v%%: %d calls are counted, want 20", percent, g.Calls)
			}
		})
	}
}

// ownDeadline is a context of a user's type: it ends with DeadlineExceeded and has no deadline, as some that merge two contexts.
type ownDeadline struct{ context.Context }

func (c ownDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// TestFollowUp_ContextOfAnotherType: a call whose context ends with DeadlineExceeded, but has no deadline, ends as with plain gRPC:
// before it is sent, while it is hedged, and as a stream that has had messages.
func TestFollowUp_ContextOfAnotherType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: func(a testserver.Attempt) testserver.Plan {
			if a.ID == 1 {
				return testserver.Plan{Delay: ms, Messages: 100, Interval: ms}
			}
			return testserver.Plan{Delay: time.Minute}
		}})
		s := hedgetest.Fixed(t, 10*ms, hedge.WithFollowUp(100), hedge.WithMaxHedges(1))
		for _, within := range []time.Duration{0, 5 * ms, 20 * ms} {
			for id, name := range []string{"unary", "stream"} {
				var ends [2]string
				for i, options := range [][]grpc.DialOption{nil, {
					grpc.WithUnaryInterceptor(interceptor.Unary(s)), grpc.WithStreamInterceptor(stream.Interceptor(s)),
				}} {
					client := testpb.NewTestServiceClient(cluster.ClientT(t, options...))
					ctx, cancel := context.WithTimeout(t.Context(), within)
					_, err := client.Unary(ownDeadline{ctx}, &testpb.Request{})
					if name == "stream" {
						var st testpb.TestService_ServerStreamClient
						st, err = client.ServerStream(ownDeadline{ctx}, &testpb.Request{Id: uint64(id), Messages: 100})
						for err == nil {
							_, err = st.Recv()
						}
					}
					cancel()
					ends[i] = fmt.Sprint(err)
				}
				if ends[0] != ends[1] {
					t.Errorf("%s within %v: %s, plain %s", name, within, ends[1], ends[0])
				}
			}
		}
	})
}
