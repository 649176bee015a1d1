package balancer_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// pickerOf returns the picker that gRPC gets from a policy with three ready backends.
func pickerOf(tb testing.TB, policy string) (target string, p grpcbalancer.Picker) {
	tb.Helper()
	cluster := testserver.StartT(tb, testserver.Config{Name: fmt.Sprintf("tap-%d", tapCount.Add(1)), Backends: 3})
	var three grpcbalancer.Picker
	ready := make(chan struct{})
	tap := func(p grpcbalancer.Picker) {
		// A round robin over three picks three.
		met := map[grpcbalancer.SubConn]bool{}
		for range 64 {
			if res, err := p.Pick(grpcbalancer.PickInfo{Ctx: context.Background()}); err == nil {
				met[res.SubConn] = true
			}
		}
		if three == nil && len(met) == 3 {
			three = p
			close(ready)
		}
	}
	taps.Store(cluster.Target(), tap)
	defer taps.Delete(cluster.Target())
	conn := cluster.ClientT(tb, bare(fmt.Sprintf(`{"test_tap": {"childPolicy": [%s]}}`, policy)))
	conn.Connect()
	<-ready
	return conn.Target(), three
}

// taps get the pickers of test_tap policies: target → func(grpcbalancer.Picker). A tap needs no
// lock, because gRPC serializes the calls of its policy.
var (
	taps     sync.Map
	tapCount atomic.Int32
)

func init() { grpcbalancer.Register(tapBuilder{}) }

// tapBuilder builds parents that show their child's pickers.
type tapBuilder struct{ parentBuilder }

func (tapBuilder) Name() string { return "test_tap" }

func (tapBuilder) Build(cc grpcbalancer.ClientConn, opts grpcbalancer.BuildOptions) grpcbalancer.Balancer {
	return &parent{ClientConn: tappedConn{cc}, opts: opts}
}

type tappedConn struct{ grpcbalancer.ClientConn }

func (c tappedConn) UpdateState(state grpcbalancer.State) {
	//lint:ignore SA1019 nothing else tells.
	if tap, ok := taps.Load(c.Target()); ok {
		tap.(func(grpcbalancer.Picker))(state.Picker.(parentPicker).Picker)
	}
	c.ClientConn.UpdateState(state)
}

// callContexts returns contexts of picks. plain is a caller's context with a deadline and metadata,
// and gRPC's values. fresh returns the same for a call that may be hedged.
func callContexts(tb testing.TB, target string) (plain context.Context, fresh func() context.Context) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	tb.Cleanup(cancel)
	ctx = metadata.AppendToOutgoingContext(ctx, "tenant", "blue")
	grpcs := func(ctx context.Context) context.Context {
		return metadata.AppendToOutgoingContext(context.WithValue(ctx, grpcsKey{}, true), "grpc", "1")
	}
	own, end := context.WithCancelCause(ctx)
	tb.Cleanup(func() { end(nil) })
	var again atomic.Int64
	return grpcs(own), func() context.Context {
		c, _ := place.Primary(own, target, &again, false)
		return grpcs(c)
	}
}

type grpcsKey struct{}

// TestCost_PrimaryPick counts the allocations of a primary's pick.
func TestCost_PrimaryPick(t *testing.T) {
	// 1: how an attempt ends is told to the child
	for child, more := range map[string]float64{roundRobin: 0, leastRequest: 1} {
		_, bare := pickerOf(t, child)
		target, policy := pickerOf(t, wrapped(child))
		plain, fresh := callContexts(t, target)
		allocs := func(p grpcbalancer.Picker, ctxs ...context.Context) float64 {
			next := 0
			return testing.AllocsPerRun(len(ctxs)-1, func() {
				if _, err := p.Pick(grpcbalancer.PickInfo{Ctx: ctxs[next]}); err != nil {
					t.Error(err)
				}
				next++
			})
		}
		var plains, calls []context.Context
		for range 1001 {
			plains, calls = append(plains, plain), append(calls, fresh()) // a record for each call, as it is
		}
		of, recorded, unhedged := allocs(bare, plains...), allocs(policy, calls...), allocs(policy, plains...)
		if recorded > of+more || unhedged > of {
			t.Errorf("%s: %v allocations; wrapped %v, of a call that is not hedged %v", child, of, recorded, unhedged)
		}
	}
}

// TestCost_Call counts the allocations of a call that needs no hedge: none more without a policy,
// and one more with a policy.
func TestCost_Call(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{})
	plain := cluster.ClientT(t)
	unary := interceptor.Unary(hedgetest.Fixed(t, time.Hour))
	req, reply := wrapperspb.Int64(1), wrapperspb.Int64(2)
	ctx := t.Context()
	invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		_ = ctx.Done()
		return nil
	}
	allocs := func() float64 {
		return testing.AllocsPerRun(1000, func() {
			if err := unary(ctx, "/a/B", req, reply, plain, invoke); err != nil {
				t.Error(err)
			}
		})
	}
	without := allocs()
	policy := place.Enter("elsewhere")
	with := allocs()
	policy.Leave()
	t.Logf("%v allocations, %v with a policy", without, with)
	if without > 4 || with > without+1 {
		t.Errorf("%v allocations, %v with a policy", without, with)
	}
}
