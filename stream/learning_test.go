package stream_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
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

// TestRule14_WhatTeaches opens streams with a first message after 50 ms, and checks the learned
// latency for each way of reading them.
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
		for _, watched := range []bool{false, true} { // not hedged, but learned from
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
					st := open(ctx, t, client, &testpb.Request{Id: 1})
					if tc.header {
						if _, err := st.Header(); err != nil {
							t.Error(err)
						}
					}
					time.Sleep(tc.late)
					if tc.gone > 0 {
						time.AfterFunc(tc.gone-tc.late, cancel)
					}
					var err error
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

// TestHeader_OfAHedgeTeachesNoLatency lets headers of a hedge decide: the primary was cut short,
// and the message is not its.
func TestHeader_OfAHedgeTeachesNoLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
		cluster, client := inMemory(t, s, slow(), testserver.Plan{HeaderAtOnce: true, Delay: 50 * ms})
		readMany(t, client, 5, true, 0)
		if got, ok := s.Latency(cluster.Target(), method, 0.5); ok || s.Stats().HedgeWins != 5 {
			t.Errorf("learned %v; %+v", got, s.Stats())
		}
	})
}

// TestOtherKindsPassThrough counts calls with a stream of requests, and leaves them alone.
func TestOtherKindsPassThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Latency: testserver.Constant(100 * ms)})
		s := hedgetest.Fixed(t, ms)
		client := dial(t, cluster, s)
		var outcome stats.Outcome
		up, err := client.ClientStream(t.Context())
		if err == nil {
			err = up.Send(&testpb.Request{Id: 5})
		}
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := up.CloseAndRecv(); err != nil || reply.Id != 5 {
			t.Errorf("%v, %v", reply, err)
		}
		both, err := client.BidiStream(t.Context(), hedge.Report(&outcome))
		if err == nil {
			err = both.Send(&testpb.Request{Id: 6})
		}
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := both.Recv(); err != nil || reply.Id != 6 {
			t.Errorf("%v, %v", reply, err)
		}
		_ = both.CloseSend()
		_, _ = both.Recv()
		if got := s.Stats(); got != (stats.Counts{PassedThrough: 2}) ||
			outcome != (stats.Outcome{Attempts: 1, Reason: stats.NotServerStream}) {
			t.Errorf("%+v, %+v", got, outcome)
		}
		synctest.Wait()
	})
}
