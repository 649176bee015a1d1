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

// TestClass_OfTheRequest lets streams be learned, and hedged, by the class of their request, which
// comes after they are opened.
func TestClass_OfTheRequest(t *testing.T) {
	for _, hedges := range []int{0, 1} { // with 0 hedges a stream is watched only
		hedgetest.Run(t, fmt.Sprintf("hedges=%d", hedges), func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true,
				Script: func(a testserver.Attempt) testserver.Plan {
					delay := 10 * ms
					if a.ID%2 == 1 {
						delay = 100 * ms
					}
					return testserver.Plan{Delay: delay, Messages: 2}
				}})
			s := hedgetest.All(t, hedge.WithTrigger(hedge.Percentile(0.5)), hedge.WithMaxHedges(hedges),
				hedge.WithClass(func(_ context.Context, name string, request any) string {
					if name != method {
						t.Errorf("the method is %q", name)
					}
					return fmt.Sprint(request.(*testpb.Request).Id % 2)
				}))
			client := dial(t, cluster, s)
			var reported stats.Outcome
			for id := range uint64(101) {
				if id == 100 {
					time.Sleep(2 * time.Second)
				}
				st := open(t.Context(), t, client, &testpb.Request{Id: id}, hedge.Report(&reported))
				if id == 100 && hedges > 0 && !within(reported.Delay, 10*ms, 0.1) {
					t.Errorf("before anybody waits, a delay of %v is reported", reported.Delay)
				}
				if _, _, err := receive(st, &testpb.Request{Id: id}); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			classes := s.Methods()[0].Classes
			if len(classes) != 2 {
				t.Fatalf("%d classes", len(classes))
			}
			for i, want := range []time.Duration{10 * ms, 100 * ms} {
				if got := classes[i]; !within(got.P50, want, 0.02) || !within(got.Delay, want, 0.05) {
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
			cluster := testserver.StartT(t, testserver.Config{InMemory: true})
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(hedges),
				hedge.WithClass(func(context.Context, string, any) string {
					time.Sleep(time.Second)
					return "slow"
				}))
			conn := cluster.ClientT(t, hedging(s))
			testserver.ConnectT(t, conn)
			ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
			defer cancel()
			st, err := conn.NewStream(ctx, &testpb.TestService_ServiceDesc.Streams[0], method)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_ = st.SendMsg(&testpb.Request{Id: 1})
			}()
			_ = st.Context()
			err = st.RecvMsg(new(testpb.Reply))
			if took := time.Since(began); status.Code(err) != codes.DeadlineExceeded || took != 100*ms {
				t.Errorf("RecvMsg returned %v after %v", err, took)
			}
			<-sent
			if classes := s.Methods()[0].Classes; len(classes) != 0 {
				t.Errorf("a stream that was over got a class: %+v", classes)
			}
		})
	}
}
