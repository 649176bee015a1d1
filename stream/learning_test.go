package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

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
		with   bool          // headers come with the message, and not at once
		hedge  bool          // a hedge is sent after 10 ms
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
		{name: "who waits for headers waits for the message", header: true, with: true, want: 50 * ms},
		{name: "who waits for headers and reads late", header: true, with: true, late: 40 * ms},
		{name: "headers of a hedge cut the primary short", header: true, hedge: true},
	} {
		for _, watched := range []bool{false, true} { // not hedged, but learned from
			hedgetest.Run(t, fmt.Sprintf("%s,watched=%v", tc.name, watched), func(t *testing.T) {
				plans := []testserver.Plan{{Delay: 50 * ms, HeaderAtOnce: !tc.with, Messages: 3, Empty: tc.empty,
					Interval: time.Second}}
				s := hedgetest.Fixed(t, time.Hour)
				switch {
				case tc.hedge:
					plans = []testserver.Plan{slow(), plans[0]}
					s = hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
				case watched:
					s = hedgetest.All(t, hedge.WithMaxHedges(0))
				}
				cluster, client := inMemory(t, s, plans...)
				for range 5 {
					ctx, cancel := context.WithCancel(t.Context())
					st := open(ctx, t, client, &testpb.Request{Id: 1})
					if tc.header {
						_, _ = st.Header()
					}
					time.Sleep(tc.late)
					if tc.gone > 0 {
						time.AfterFunc(tc.gone-tc.late, cancel)
					}
					if tc.gone != tc.late || tc.gone == 0 {
						_, _ = st.Recv()
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

// TestOtherKindsPassThrough counts calls with a stream of requests, and leaves them alone.
func TestOtherKindsPassThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.Fixed(t, ms)
		_, client := inMemory(t, s, delivers(100*ms))
		var outcome stats.Outcome
		up, err := client.ClientStream(t.Context())
		both, errBoth := client.BidiStream(t.Context(), hedge.Report(&outcome))
		if err = errors.Join(err, errBoth); err != nil {
			t.Fatal(err)
		}
		err = errors.Join(up.Send(&testpb.Request{Id: 5}), both.Send(&testpb.Request{Id: 6}), both.CloseSend())
		one, errOne := up.CloseAndRecv()
		two, errTwo := both.Recv()
		_, end := both.Recv()
		if err = errors.Join(err, errOne, errTwo); err != nil || one.Id != 5 || two.Id != 6 || end != io.EOF {
			t.Errorf("%v, %v, %v, %v", err, one, two, end)
		}
		if got := s.Stats(); got != (stats.Counts{PassedThrough: 2}) ||
			outcome != (stats.Outcome{Attempts: 1, Reason: stats.NotServerStream}) {
			t.Errorf("%+v, %+v", got, outcome)
		}
		synctest.Wait()
	})
}
