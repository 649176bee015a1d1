package stream_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
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
)

// TestRule04_DeadlineAndCancelBoundTheStream ends the caller's context before the race, in it and after it.
func TestRule04_DeadlineAndCancelBoundTheStream(t *testing.T) {
	for _, tc := range []struct {
		name  string
		at    time.Duration
		reads time.Duration // when the caller starts to receive
		plans []testserver.Plan
		got   int // messages
	}{
		{"before the race", 5 * ms, 8 * ms, []testserver.Plan{{Delay: time.Hour}}, 0},
		{"in the race", 15 * ms, 0, []testserver.Plan{{Delay: time.Hour}, {Delay: time.Hour}}, 0},
		{"after the primary won", 25 * ms, 0, []testserver.Plan{{Delay: 12 * ms, Messages: 9, Interval: 10 * ms}, {Delay: time.Hour}}, 2},
		{"after the hedge won", 25 * ms, 0, []testserver.Plan{{Delay: time.Hour}, {Delay: 2 * ms, Messages: 9, Interval: 10 * ms}}, 2},
	} {
		for _, deadline := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s,deadline=%v", tc.name, deadline), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(tc.plans...)})
					client := dial(t, cluster, hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)))
					ctx, cancel := context.WithCancel(t.Context())
					want := codes.Canceled
					if deadline {
						ctx, cancel = context.WithTimeout(t.Context(), tc.at)
						want = codes.DeadlineExceeded
					} else {
						time.AfterFunc(tc.at, cancel)
					}
					defer cancel()
					began := time.Now()
					finished := 0
					st, err := client.ServerStream(ctx, &testpb.Request{Id: 1}, grpc.OnFinish(func(err error) {
						finished++
						if status.Code(err) != want {
							t.Errorf("OnFinish(%v)", err)
						}
					}))
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(tc.reads)
					got := 0
					for ; err == nil; got++ {
						_, err = st.Recv()
					}
					if status.Code(err) != want || got-1 != tc.got || time.Since(began) != max(tc.at, tc.reads) {
						t.Errorf("%d messages, %v after %v", got-1, err, time.Since(began))
					}
					synctest.Wait()
					if c := cluster.Counts(); c.InFlight != 0 || finished != 1 {
						t.Errorf("%+v, OnFinish ran %d times", c, finished)
					}
				})
			})
		}
	}
}

func TestRule05_AttemptsCarryTheCallersMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Latency: testserver.Constant(100 * ms)})
		client := dial(t, cluster, hedgetest.Fixed(t, 10*ms))
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "tenant", "blue"), time.Minute)
		defer cancel()
		req := &testpb.Request{Id: 7, Messages: 2}
		st, err := client.ServerStream(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if n, attempt, err := receive(st, req); n != 2 || attempt != 0 || err != nil {
			t.Errorf("%d messages of attempt %d, %v", n, attempt, err)
		}
		records := cluster.RecordsOf(7)
		if len(records) != 3 {
			t.Fatalf("%d attempts", len(records))
		}
		for n, r := range records {
			marks := append(r.Metadata.Get("grpc-previous-rpc-attempts"), r.Metadata.Get("hedge-primary-in-flight")...)
			if r.Metadata.Get("tenant")[0] != "blue" || !slices.Equal(marks, [][]string{nil, {"1", "1"}, {"2", "1"}}[n]) {
				t.Errorf("attempt %d: %v", n, r.Metadata)
			}
		}
	})
}

// TestRule06_CallOptionsAreTheWinners fills each option once, at the end of the stream, from the attempt that won.
func TestRule06_CallOptionsAreTheWinners(t *testing.T) {
	says := func(p testserver.Plan, number string) testserver.Plan {
		p.Header, p.Trailer = metadata.Pairs("attempt", number), metadata.Pairs("attempt", number)
		return p
	}
	for winner, plans := range [][]testserver.Plan{
		{says(testserver.Plan{Delay: 15 * ms}, "0"), says(testserver.Plan{Delay: time.Hour}, "1")},
		{says(testserver.Plan{Delay: time.Hour, HeaderAtOnce: true}, "0"), says(testserver.Plan{}, "1")},
	} {
		synctest.Test(t, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(plans...), Backends: 2})
			client := dial(t, cluster, hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)))
			header, trailer := metadata.Pairs("attempt", "stale"), metadata.Pairs("attempt", "stale")
			var from peer.Peer
			var order []string
			st, err := client.ServerStream(t.Context(), &testpb.Request{Id: 1, Messages: 2},
				grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from),
				grpc.OnFinish(func(err error) { order = append(order, "first", trailer.Get("attempt")[0]) }),
				grpc.OnFinish(func(error) { order = append(order, "second") }))
			if err != nil {
				t.Fatal(err)
			}
			want := []string{strconv.Itoa(winner)}
			reply, err := st.Recv()
			if err != nil || trailer.Get("attempt")[0] != "stale" || len(order) > 0 {
				t.Errorf("%v; trailer %v and OnFinish %v before the end of the stream", err, trailer, order)
			}
			if md, err := st.Header(); err != nil || !slices.Equal(md.Get("attempt"), want) {
				t.Errorf("Header: %v, %v", md, err)
			}
			for err == nil {
				_, err = st.Recv()
			}
			if !slices.Equal(header.Get("attempt"), want) || !slices.Equal(trailer.Get("attempt"), want) || !slices.Equal(st.Trailer().Get("attempt"), want) {
				t.Errorf("header %v, trailer %v, %v", header, trailer, st.Trailer())
			}
			if from.Addr.String() != cluster.Address(int(reply.Backend)) {
				t.Errorf("peer %v, but backend %d answered", from, reply.Backend)
			}
			if p, ok := peer.FromContext(st.Context()); !ok || p.Addr.String() != from.Addr.String() {
				t.Errorf("the stream's context says %v", p)
			}
			if !slices.Equal(order, []string{"first", want[0], "second"}) {
				t.Errorf("OnFinish: %v", order)
			}
			synctest.Wait()
		})
	}
}

// TestRule08_AbandonedStreams abandons streams in every phase and then ends their contexts.
func TestRule08_AbandonedStreams(t *testing.T) {
	each := int64(longtest.Size(400, 1000))
	cluster := testserver.StartT(t, testserver.Config{CountsOnly: true, Script: func(a testserver.Attempt) testserver.Plan {
		if a.ID%4 == 1 { // in the race
			return testserver.Plan{Ending: testserver.Hang}
		}
		if a.ID%4 == 3 && a.Number == 0 { // after the hedge won
			return testserver.Plan{Delay: time.Hour}
		}
		return testserver.Plan{Delay: ms, Messages: 1000, Interval: 10 * ms}
	}})
	s := hedgetest.Fixed(t, 2*ms, hedge.WithMaxHedges(1))
	client := dial(t, cluster, s)
	abandonStreams(t, client, 400) // fills the pools of gRPC
	cluster.WaitIdleT(t)
	before := testserver.Heap()
	abandonStreams(t, client, 4*each)
	cluster.WaitIdleT(t)
	if got := cluster.Counts(); got.InFlight != 0 || got.Hedges < each {
		t.Errorf("%+v", got)
	}
	// A stream that was left would be several kilobytes.
	grown := int64(testserver.Heap()) - int64(before)
	t.Logf("heap grown by %d KiB, %d bytes a stream", grown>>10, grown/(4*each))
	if grown > 4*each*500 {
		t.Errorf("the heap has grown by %d bytes a stream", grown/(4*each))
	}
}

// abandonStreams abandons so many streams, 200 at a time.
func abandonStreams(t *testing.T, client testpb.TestServiceClient, streams int64) {
	t.Helper()
	var group sync.WaitGroup
	limit := make(chan struct{}, 200)
	for i := range streams {
		limit <- struct{}{}
		group.Go(func() {
			defer func() { <-limit }()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			st, err := client.ServerStream(ctx, &testpb.Request{Id: uint64(i), Messages: 1000})
			if err != nil {
				t.Error(err)
				return
			}
			switch i % 4 {
			case 0: // before the first receive
			case 1: // in the race
				time.AfterFunc(5*ms, cancel)
				if _, err := st.Recv(); status.Code(err) != codes.Canceled {
					t.Error(err)
				}
			default: // after three messages, of a primary or of a hedge
				for range 3 {
					if _, err := st.Recv(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
}
