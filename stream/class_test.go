package stream_test

import (
	"context"
	"fmt"
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
)

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
				if got := classes[i]; got.Class != fmt.Sprint(true, i) || !within(got.P50, want, 0.02) ||
					!within(got.Delay, want, 0.05) {
					t.Errorf("class %s: median %v, hedged after %v, want both to be %v", got.Class, got.P50, got.Delay, want)
				}
			}
			// The fast class has no hedges: its delay is its own, and not the method's.
			if got := s.Stats().Hedges; got > 10 {
				t.Errorf("%d hedges", got)
			}
		})
	}
}

// TestClass_NobodyWaitsForItsFunction has a function that takes long find the class, while another
// goroutine waits for the first message and its caller gives up.
func TestClass_NobodyWaitsForItsFunction(t *testing.T) {
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
				t.Errorf("a stream that was over got a class: %+v", classes)
			}
		})
	}
}

// TestRequest_FilledAnewForTheNextStream reads the answers to three streams that were opened with
// the same message, as works with plain gRPC: a generated method has encoded its request when it
// returns.
func TestRequest_FilledAnewForTheNextStream(t *testing.T) {
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

// TestDryRun_OfAMessageThatCannotBeMoved has a late stream that would not be hedged if there were no
// dry run.
func TestDryRun_OfAMessageThatCannotBeMoved(t *testing.T) {
	for _, into := range []any{new(testpb.Reply), new(any)} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithDryRun(true))
			cluster, _ := inMemory(t, s, delivers(50*ms))
			conn := cluster.ClientT(t, hedging(s))
			st, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method)
			if err == nil {
				err = st.SendMsg(&testpb.Request{Messages: 1})
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = st.RecvMsg(into)
			_, moved := into.(*testpb.Reply)
			if got := s.Stats(); (got.DryRun == 1) != moved || (got.NotReplayable == 1) == moved {
				t.Errorf("%T: %+v", into, got)
			}
		})
	}
}
