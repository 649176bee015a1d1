package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
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
		with   bool          // headers come with the message, and not at once
		waits  bool          // Header waits for the first message: hedge.WithWaitForMessage
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
		{name: "Header waits for the message", header: true, waits: true, want: 50 * ms},
		{name: "Header waits for the message, with which headers come", header: true, with: true, waits: true, want: 50 * ms},
		{name: "Header waits for the message, at the end of an empty stream", header: true, empty: true, waits: true,
			want: 50 * ms},
		{name: "headers of a hedge cut the primary short", header: true, hedge: true},
	} {
		for _, watched := range []bool{false, true} { // not hedged, but learned from
			hedgetest.Run(t, fmt.Sprintf("%s,watched=%v", tc.name, watched), func(t *testing.T) {
				plans := []testserver.Plan{{Delay: 50 * ms, HeaderAtOnce: !tc.with, Messages: 3, Empty: tc.empty,
					Interval: time.Second}}
				var options []hedge.Option
				if tc.waits {
					options = append(options, hedge.WithWaitForMessage(method))
				}
				s := hedgetest.Fixed(t, time.Hour, options...)
				switch {
				case tc.hedge:
					plans = []testserver.Plan{slow(), plans[0]}
					s = hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
				case watched:
					s = hedgetest.All(t, append(options, hedge.WithMaxHedges(0))...)
				}
				cluster, client := inMemory(t, s, plans...)
				for range 5 {
					ctx, cancel := context.WithCancel(t.Context())
					st := open(ctx, t, client, &testpb.Request{Id: 1})
					if tc.header {
						_, _ = st.Header()
					}
					time.Sleep(tc.late)
					if tc.gone > tc.late {
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
			t.Errorf("%v, replies %v and %v, then %v; want the replies to 5 and 6, then the end", err, one, two, end)
		}
		if got := s.Stats(); got != (stats.Counts{PassedThrough: 2}) ||
			outcome != (stats.Outcome{Attempts: 1, Reason: stats.NotServerStream}) {
			t.Errorf("counted %+v, reported %+v; want two calls passed through", got, outcome)
		}
		synctest.Wait()
	})
}

// TestClass_OfTheRequest lets streams be learned, and hedged, by the class of their request, which
// comes after they are opened.
func TestClass_OfTheRequest(t *testing.T) {
	for _, hedges := range []int{0, 1} { // with 0 hedges a stream is watched only
		hedgetest.Run(t, fmt.Sprintf("hedges=%d", hedges), func(t *testing.T) {
			s := hedgetest.All(t, hedge.WithTrigger(hedge.Percentile(0.5)), hedge.WithMaxHedges(hedges),
				hedge.WithClass(func(_ context.Context, name string, request any) string {
					return fmt.Sprint(name == method, request.(*testpb.Request).Id%2)
				}))
			cluster, client := inMemory(t, s)
			cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
				return testserver.Plan{Delay: time.Duration(10+90*(a.ID%2)) * ms}
			})
			for id := range uint64(100) {
				req := &testpb.Request{Id: id, Messages: 2}
				if _, _, err := receive(open(t.Context(), t, client, req), req); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			classes := s.Methods()[0].Classes
			for i, want := range []time.Duration{10 * ms, 100 * ms} {
				delay := time.Duration(hedges) * want
				if got := classes[i]; got.Class != fmt.Sprint(true, i) || !within(got.P50, want, 0.02) ||
					!within(got.Delay, delay, 0.05) {
					t.Errorf("class %s: median %v, hedged after %v, want %v and %v", got.Class, got.P50, got.Delay, want, delay)
				}
			}
			// The fast class has no hedges: its delay is its own, and not the method's.
			if got := s.Stats().Hedges; got > 10 {
				t.Errorf("%d hedges", got)
			}
		})
	}
}

// TestClass_NoCallWaitsForItsFunction has a function that takes long find the class, while another
// goroutine waits for the first message and its caller gives up.
func TestClass_NoCallWaitsForItsFunction(t *testing.T) {
	for _, hedges := range []int{0, 1} {
		hedgetest.Run(t, fmt.Sprintf("hedges=%d", hedges), func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(hedges), hedge.WithSingleRequest("/*/BidiStream"),
				hedge.WithClass(func(context.Context, string, any) string { time.Sleep(time.Second); return "slow" }))
			_, client := inMemory(t, s)
			ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
			defer cancel()
			st, err := client.BidiStream(ctx) // of the methods that may be opened without a request
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var sent sync.WaitGroup
			sent.Go(func() { _ = st.Send(&testpb.Request{Id: 1}) })
			_ = st.Context()
			_, err = st.Recv()
			if took := time.Since(began); status.Code(err) != codes.DeadlineExceeded || took != 100*ms {
				t.Errorf("Recv returned %v after %v", err, took)
			}
			sent.Wait()
			if classes := s.Methods()[0].Classes; len(classes) != 0 {
				t.Errorf("a stream that had ended got a class: %+v", classes)
			}
		})
	}
}

// TestRequest_ReusedForTheNextStream reads the answers to three streams opened with the same
// message, which works with plain gRPC: a generated method has encoded its request when it returns.
func TestRequest_ReusedForTheNextStream(t *testing.T) {
	for _, hedges := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			plans := []testserver.Plan{{Ending: testserver.Hang}, {Messages: 1}}
			_, client := inMemory(t, hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(hedges)), plans[1-hedges:]...)
			req := &testpb.Request{Messages: 1}
			var streams []grpc.ServerStreamingClient[testpb.Reply]
			for id := range uint64(3) {
				req.Id = id + 1
				streams = append(streams, open(context.WithoutCancel(t.Context()), t, client, req))
			}
			for i, st := range streams {
				if n, attempt, err := receive(st, &testpb.Request{Id: uint64(i + 1)}); n != 1 || attempt != hedges || err != nil {
					t.Errorf("with %d hedges stream %d has %d messages of attempt %d, %v", hedges, i+1, n, attempt, err)
				}
			}
		})
	}
}
