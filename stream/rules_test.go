package stream_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestRule08_AbandonedStreams abandons streams in every phase and then ends their contexts.
func TestRule08_AbandonedStreams(t *testing.T) {
	each := int64(longtest.Size(400, 1000))
	cluster := testserver.StartT(t, testserver.Config{CountsOnly: true,
		Script: func(a testserver.Attempt) testserver.Plan {
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

// abandonStreams abandons a number of streams, 200 at a time.
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
