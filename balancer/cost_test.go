package balancer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestCost_PrimaryPick counts the allocations of a primary's pick beyond the child's: none, or one to
// tell the child how an attempt of a call that may be hedged ends.
func TestCost_PrimaryPick(t *testing.T) {
	conn, child, made := buildReady(t, 3)
	var again atomic.Int64
	grpcs := func(ctx context.Context) context.Context { return metadata.AppendToOutgoingContext(ctx, "grpc", "1") }
	caller, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "tenant", "blue"), time.Hour)
	defer cancel()
	var unhedged, hedged []context.Context
	for range 1001 { // a record for each call
		c, _ := place.Primary(caller, conn.Target(), &again, false)
		unhedged, hedged = append(unhedged, grpcs(caller)), append(hedged, grpcs(c))
	}
	for _, tc := range []struct {
		name string
		done func(grpcbalancer.DoneInfo)
		ctxs []context.Context
		most float64
	}{
		{"without a Done", nil, hedged, 0},
		{"with a Done", func(grpcbalancer.DoneInfo) {}, hedged, 1},
		{"not hedged, with a Done", func(grpcbalancer.DoneInfo) {}, unhedged, 0},
	} {
		next := 0
		child.say(connectivity.Ready, funcPicker(func() (grpcbalancer.PickResult, error) {
			return grpcbalancer.PickResult{SubConn: made[next%3], Done: tc.done}, nil
		}))
		if n := testing.AllocsPerRun(len(tc.ctxs)-1, func() {
			if _, err := conn.pick(tc.ctxs[next]); err != nil {
				t.Error(err)
			}
			next++
		}); n > tc.most {
			t.Errorf("%s: %v allocations, want at most %v", tc.name, n, tc.most)
		}
	}
}

// TestCost_Call counts the allocations of a call that needs no hedge: none more without a policy,
// and one more with a policy.
func TestCost_Call(t *testing.T) {
	plain := testserver.StartT(t, testserver.Config{}).ClientT(t)
	unary := interceptor.Unary(hedgetest.Fixed(t, time.Hour))
	req, reply, ctx := wrapperspb.Int64(1), wrapperspb.Int64(2), t.Context()
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
	if without > 4 || with > without+1 {
		t.Errorf("%v allocations, %v with a policy", without, with)
	}
}
