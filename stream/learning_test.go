package stream_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

const method = testpb.TestService_ServerStream_FullMethodName

func within(got, want time.Duration, share float64) bool {
	return float64(got) >= float64(want)*(1-share) && float64(got) <= float64(want)*(1+share)
}

// TestRule14_WhatTeaches opens streams whose first message comes after 50 ms and looks what is learned from how
// their caller reads them.
func TestRule14_WhatTeaches(t *testing.T) {
	for _, tc := range []struct {
		name   string
		header bool          // Header is called before
		late   time.Duration // when the caller comes
		gone   time.Duration // when it gives up; 0: never
		empty  bool          // the stream has no message
		want   time.Duration // the median learned; 0: nothing
	}{
		{name: "a waiting reader", want: 50 * ms},
		{name: "the end of an empty stream is an answer", empty: true, want: 50 * ms},
		{name: "headers at once say nothing", header: true, want: 50 * ms},
		{name: "a late reader that still waits long enough", late: 20 * ms, want: 50 * ms},
		{name: "a late reader", late: 2 * time.Second},
		{name: "a late reader, after headers", header: true, late: 2 * time.Second},
		{name: "a reader that gives up", gone: 30 * ms}, // a lower bound alone is no latency
		{name: "nobody reads", late: 10 * ms, gone: 10 * ms},
	} {
		for _, watched := range []bool{false, true} { // hedging off, and learning all the same
			hedgetest.Run(t, fmt.Sprintf("%s,watched=%v", tc.name, watched), func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(
					testserver.Plan{Delay: 50 * ms, HeaderAtOnce: true, Messages: 3, Empty: tc.empty, Interval: time.Second})})
				s := hedgetest.Fixed(t, time.Hour)
				if watched {
					s = hedgetest.All(t, hedge.WithMaxHedges(0))
				}
				client := dial(t, cluster, s)
				for range 5 {
					ctx, cancel := context.WithCancel(t.Context())
					st, err := client.ServerStream(ctx, &testpb.Request{Id: 1})
					if err != nil {
						t.Fatal(err)
					}
					if tc.header {
						if _, err := st.Header(); err != nil {
							t.Error(err)
						}
					}
					time.Sleep(tc.late)
					if tc.gone > 0 {
						time.AfterFunc(tc.gone-tc.late, cancel)
					}
					if tc.gone == 0 || tc.gone > tc.late {
						_, err = st.Recv()
					}
					if tc.gone == 0 && err != nil && !tc.empty || tc.gone > tc.late && status.Code(err) != codes.Canceled {
						t.Error(err)
					}
					cancel()
					synctest.Wait()
				}
				got, ok := s.Latency(cluster.Target(), method, 0.5)
				if ok != (tc.want > 0) || !within(got, tc.want, 0.01) {
					t.Errorf("learned %v, want %v", got, tc.want)
				}
			})
		}
	}
}

// TestHeader_OfAHedgeTeachesNoLatency lets headers of a hedge decide: the primary was cut short, and the message is not its.
func TestHeader_OfAHedgeTeachesNoLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(slow(), testserver.Plan{HeaderAtOnce: true, Delay: 50 * ms})})
		s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
		readMany(t, dial(t, cluster, s), 5, true, 0)
		if got, ok := s.Latency(cluster.Target(), method, 0.5); ok || s.Stats().HedgeWins != 5 {
			t.Errorf("learned %v; %+v", got, s.Stats())
		}
	})
}

// TestOtherKindsPassThrough counts calls whose requests are a stream, and leaves them alone.
func TestOtherKindsPassThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Latency: testserver.Constant(100 * ms)})
		s := hedgetest.Fixed(t, ms)
		client := dial(t, cluster, s)
		up, err := client.ClientStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := up.Send(&testpb.Request{Id: 5}); err != nil {
				t.Fatal(err)
			}
		}
		if reply, err := up.CloseAndRecv(); err != nil || reply.Id != 5 {
			t.Errorf("%v, %v", reply, err)
		}
		var outcome stats.Outcome
		both, err := client.BidiStream(t.Context(), hedge.Report(&outcome))
		if err != nil {
			t.Fatal(err)
		}
		if err := both.Send(&testpb.Request{Id: 6}); err != nil {
			t.Fatal(err)
		}
		if reply, err := both.Recv(); err != nil || reply.Id != 6 {
			t.Errorf("%v, %v", reply, err)
		}
		_ = both.CloseSend()
		_, _ = both.Recv()
		if got := s.Stats(); got != (stats.Counts{PassedThrough: 2}) || outcome != (stats.Outcome{Attempts: 1, Reason: stats.NotServerStream}) {
			t.Errorf("%+v, %+v", got, outcome)
		}
		synctest.Wait()
	})
}

// TestContext_BeforeTheFirstMessage holds on to a context that was asked for before a hedge wins.
func TestContext_BeforeTheFirstMessage(t *testing.T) {
	type key struct{}
	for _, hedged := range []bool{false, true} { // the control is plain gRPC
		synctest.Test(t, func(t *testing.T) {
			winner := 0
			plans := []testserver.Plan{{Delay: 100 * ms, Interval: 10 * ms}, {Interval: 10 * ms}}
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(plans...), Backends: 2})
			var s *hedge.Scheduler
			if hedged {
				s, winner = hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), 1
			}
			client := dial(t, cluster, s)
			req := &testpb.Request{Id: 1, Messages: 3}
			caller := context.WithValue(t.Context(), key{}, "a value")
			st, err := client.ServerStream(caller, req)
			if err != nil {
				t.Fatal(err)
			}
			ctx := st.Context()
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			if _, ok := peer.FromContext(ctx); !ok || ctx.Value(key{}) != "a value" {
				t.Error("no peer, or no value, before the first message")
			}
			first, err := st.Recv()
			if err != nil || int(first.Attempt) != winner {
				t.Fatalf("%v, %v", first, err)
			}
			if p, ok := peer.FromContext(ctx); !ok || p.Addr.String() != cluster.Address(int(first.Backend)) {
				t.Errorf("peer %v, but backend %d answered", p, first.Backend)
			}
			synctest.Wait()
			for n := 1; n < 3; n++ {
				if ctx.Err() != nil || child.Err() != nil || st.Context().Err() != nil {
					t.Errorf("it ended before message %d: %v, %v, %v", n, ctx.Err(), child.Err(), st.Context().Err())
				}
				if _, err := st.Recv(); err != nil {
					t.Error(err)
				}
			}
			if _, err := st.Recv(); err != io.EOF {
				t.Error(err)
			}
			if ctx.Err() != context.Canceled || st.Context().Err() != context.Canceled {
				t.Errorf("the stream has ended, and its context not: %v", ctx.Err())
			}
			synctest.Wait()
			if child.Err() == nil {
				t.Error("a child of the context has not ended")
			}
		})
	}
}
