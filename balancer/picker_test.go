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
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestPicker_ChildReturnsNoPick has a child that picks the first of two backends only, and returns no
// pick at some point of a search. The hedge then uses the child's first pick.
func TestPicker_ChildReturnsNoPick(t *testing.T) {
	conn, child, made := buildReady(t, 2)
	picks, none, open := 0, 0, 0
	first := inTurn(&open, made[0])
	child.say(connectivity.Ready, funcPicker(func() (grpcbalancer.PickResult, error) {
		if picks++; picks == none {
			return grpcbalancer.PickResult{}, grpcbalancer.ErrNoSubConnAvailable
		}
		return first()
	}))
	for none = range 5 {
		picks, open = 0, 0
		record := place.New(conn.Target(), new(atomic.Int64))
		ctx := race.Placed(t.Context(), record, nil)
		res, err := conn.pick(ctx)
		if err == nil {
			res, err = conn.pick(race.Placed(t.Context(), record, new(place.Hedge)))
		}
		if first := none == 1 || none == 2; first != (err != nil) || !first && (res.SubConn != conn.made[0] || open != 2) {
			t.Errorf("no pick %d: the hedge goes to %p of %v, %v; %d picks are open", none, res.SubConn, conn.made, err, open)
		}
	}
}

// TestPicker_Nil has a child with no picker. Calls wait, as they do without the policy.
func TestPicker_Nil(t *testing.T) {
	conn, child, _ := buildReady(t, 1)
	child.say(connectivity.Connecting, nil)
	if res, err := conn.pick(t.Context()); err != grpcbalancer.ErrNoSubConnAvailable {
		t.Errorf("picked %v, %v, want to wait", res.SubConn, err)
	}
}

// TestPicker_AsksBounded has a child that always picks the same of two connections. It is asked 16
// times for an attempt at most, and seldom if that never helps. Each pick is given back or used.
func TestPicker_AsksBounded(t *testing.T) {
	conn, child, made := buildReady(t, 2)
	asked, open, most, all := 0, 0, 0, 0
	first := inTurn(&open, made[0])
	child.say(connectivity.Ready, funcPicker(func() (grpcbalancer.PickResult, error) { asked++; return first() }))
	const hedges = 1000
	for range hedges {
		record := place.New(conn.Target(), new(atomic.Int64))
		ctx := race.Placed(t.Context(), record, nil)
		for _, ctx := range []context.Context{ctx, race.Placed(t.Context(), record, new(place.Hedge))} {
			asked = 0
			res, err := conn.pick(ctx)
			if err != nil || res.SubConn != conn.made[0] || open != 1 {
				t.Fatalf("%v, %v; %d picks are open", res.SubConn, err, open)
			}
			res.Done(grpcbalancer.DoneInfo{})
			most, all = max(most, asked), all+asked
		}
	}
	if most > 16 || all > 4*hedges {
		t.Errorf("asked %d times for one attempt, %d for %d hedges", most, all, hedges)
	}
}

// TestPicker_Allocations counts the allocations of a primary's pick beyond the child's: none, or one
// to tell the child how an attempt of a call that may be hedged ends.
func TestPicker_Allocations(t *testing.T) {
	conn, child, made := buildReady(t, 3)
	var again atomic.Int64
	grpcs := func(ctx context.Context) context.Context { return metadata.AppendToOutgoingContext(ctx, "grpc", "1") }
	caller, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "tenant", "blue"), time.Hour)
	defer cancel()
	var unhedged, hedged []context.Context
	for range 1001 { // a record for each call
		c := race.Placed(caller, place.New(conn.Target(), &again), nil)
		unhedged, hedged = append(unhedged, grpcs(caller)), append(hedged, grpcs(c))
	}
	for _, tc := range []struct {
		name string
		done func(grpcbalancer.DoneInfo)
		ctxs []context.Context
		most float64
	}{
		{name: "without a Done", ctxs: hedged},
		{name: "with a Done", done: func(grpcbalancer.DoneInfo) {}, ctxs: hedged, most: 1},
		{name: "not hedged, with a Done", done: func(grpcbalancer.DoneInfo) {}, ctxs: unhedged},
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

// TestCall_Allocations counts the allocations of a call that needs no hedge: one more with a policy.
func TestCall_Allocations(t *testing.T) {
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
	if policy.Leave(); with > without+1 {
		t.Errorf("%v allocations, %v with a policy", without, with)
	}
}
