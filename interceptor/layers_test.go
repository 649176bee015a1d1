package interceptor_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// layer is a service that calls the next one for every request, as each layer of a system does.
type layer struct {
	testpb.UnimplementedTestServiceServer
	served atomic.Int64
	hides  bool                     // that it serves a hedge
	next   testpb.TestServiceClient // nil at the bottom
	stall  *atomic.Bool             // the bottom stalls while it is true
}

func (l *layer) Unary(ctx context.Context, in *testpb.Request) (*testpb.Reply, error) {
	l.served.Add(1)
	if l.next != nil {
		if l.hides {
			ctx = metadata.NewIncomingContext(ctx, nil)
		}
		return l.next.Unary(ctx, in)
	}
	wait := 5 * time.Millisecond
	if l.stall.Load() {
		wait = 10 * time.Second
	}
	_, err := hedgetest.Taking(wait)(ctx)
	return &testpb.Reply{}, err
}

// TestHedgesOfHedges_FiveLayers has five services in a row, and each hedges up to a tenth of
// its calls. A stalled last service gets fewer calls if no service hedges on behalf of a hedge.
// Both figures are the servers' own counts.
//
// With hedges of hedges the loads of layers multiply: 1.1⁵ = 1.61. Without, layer n does not hedge
// the calls that are hedges of layer n-1: h(n) = 0.1·(1 + h(1) + … + h(n-2)), or 1.56. A call that
// a service makes for a primary is hedged, even if that primary was itself made for a hedge: the
// mark reaches one layer.
func TestHedgesOfHedges_FiveLayers(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	load := func(hide bool) (all, bottom int64) {
		synctest.Test(t, func(t *testing.T) { all, bottom = stalledLayers(t, hide) })
		return all, bottom
	}
	_, with := load(true)
	calls, without := load(false)
	t.Logf("%d calls while the bottom stood still: %d at the bottom, %d with hedges of hedges", calls, without, with)
	if without >= with {
		t.Errorf("%d calls at the bottom, %d with hedges of hedges", without, with)
	}
	// 1.56 times the calls for the lost marks, and the initial content of five budgets: two
	// seconds' worth each, hardly spent before the stall.
	if most := calls * 168 / 100; without > most {
		t.Errorf("%d calls at the bottom for %d calls, want at most %d", without, calls, most)
	}
}

// stalledLayers makes calls to five layers, for 5 s before the last one stalls for 10 s. It returns
// the client's calls and the attempts at the last layer during the stall. If hide is set, no
// service learns that it serves a hedge.
func stalledLayers(t *testing.T, hide bool) (calls, bottom int64) {
	var stall atomic.Bool
	next := testpb.TestServiceClient(nil)
	last := &layer{stall: &stall}
	for i := range 6 { // five services, and the client of the first
		if i > 0 {
			s := hedgetest.All(t)
			l := &layer{next: next, hides: hide}
			if i == 1 {
				l = last
			}
			next = testpb.NewTestServiceClient(testserver.ServiceT(t, l, hedgetest.Interceptors(s)...))
		}
	}
	var wg sync.WaitGroup
	makeCalls := func(d time.Duration) (n int64) {
		for range int(d / (10 * time.Millisecond)) {
			n++
			wg.Go(func() { next.Unary(context.Background(), &testpb.Request{}) })
			time.Sleep(10 * time.Millisecond)
		}
		return n
	}
	makeCalls(5 * time.Second)
	wg.Wait()
	before := last.served.Load()
	stall.Store(true)
	calls = makeCalls(10 * time.Second)
	stall.Store(false)
	bottom = last.served.Load() - before
	wg.Wait()
	return calls, bottom
}
