package balancer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestPicksAreReleased counts at the child: Done is called once for each pick, with an empty
// DoneInfo if and only if the pick is not used.
func TestPicksAreReleased(t *testing.T) {
	for _, tc := range []struct {
		backends int
		only     bool
	}{{1, false}, {3, false}, {3, true}} {
		inBubble(t, func(t *testing.T, k kind) {
			const calls, hedges = 50, 2
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(hedges), hedge.WithOtherBackendOnly(tc.only))
			_, client := play(t, testserver.Config{Backends: tc.backends, Script: lastAnswers(hedges)}, s, over(counting))
			before := countsNow()
			for id := range uint64(calls) {
				k.must(t, client, id)
			}
			synctest.Wait()
			n := countsNow().minus(before)
			if n.dones != n.picks || counts.twice.Load() {
				t.Errorf("%+v; one of them was done twice: %v", n, counts.twice.Load())
			}
			if n.unused != n.picks-calls*(hedges+1) || (n.unused > 0) != (tc.backends > 1) {
				t.Errorf("%d backends: %+v", tc.backends, n)
			}
		})
	}
}

// TestPicksAreReleased_OfHedgesThatFail has hedges that fail before they pick. The caller of a
// stream asks for its headers alone, and then gives up.
func TestPicksAreReleased_OfHedgesThatFail(t *testing.T) {
	isHedge := func(ctx context.Context) bool {
		md, _ := metadata.FromOutgoingContext(ctx)
		return len(md.Get(rpc.AttemptsHeader)) > 0
	}
	inBubble(t, func(t *testing.T, k kind) {
		_, client := play(t, testserver.Config{Backends: 3, Latency: testserver.Constant(30 * ms)},
			hedgetest.Fixed(t, 10*ms, hedge.WithOtherBackendOnly(true)), over(counting),
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
				cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if isHedge(ctx) {
					return errFake
				}
				return invoke(ctx, method, req, reply, cc, opts...)
			}),
			grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
				method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				if isHedge(ctx) {
					return nil, errFake
				}
				return open(ctx, desc, cc, method, opts...)
			}))
		before := countsNow()
		k.must(t, client, 1)
		ctx, cancel := context.WithCancel(t.Context())
		st, err := client.ServerStream(ctx, &testpb.Request{Messages: 1})
		if err == nil {
			_, err = st.Header()
		}
		cancel()
		synctest.Wait()
		if n := countsNow().minus(before); err != nil || n.picks < 4 || n.dones != n.picks {
			t.Errorf("%+v; %v", n, err)
		}
	})
}

// TestPicker_NoPickHalfWay has a child that picks the first of two backends only, and returns no
// pick at some point of a search. The hedge then uses the child's first pick.
func TestPicker_NoPickHalfWay(t *testing.T) {
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
		ctx, record := place.Primary(t.Context(), conn.Target(), new(atomic.Int64), false)
		res, err := conn.pick(ctx)
		if err == nil {
			res, err = conn.pick(record.Hedge(t.Context()))
		}
		if first := none == 1 || none == 2; first != (err != nil) || !first && (res.SubConn != conn.made[0] || open != 2) {
			t.Errorf("no pick %d: the hedge goes to %p of %v, %v; %d picks are open", none, res.SubConn, conn.made, err, open)
		}
	}
}

// TestPicker_ReservedIsLost loses the connection that was reserved for a hedge before the hedge
// picks. The hedge uses another one.
func TestPicker_ReservedIsLost(t *testing.T) {
	conn, child, made := buildReady(t, 3)
	open := 0
	child.say(connectivity.Ready, inTurn(&open, made...))
	ctx, record := place.Primary(t.Context(), conn.Target(), new(atomic.Int64), true)
	if res, err := conn.pick(ctx); err != nil || res.SubConn != conn.made[0] || !record.Reserve() || open != 2 {
		t.Fatalf("%v, %v; %d picks are open", res.SubConn, err, open)
	}
	conn.made[1].listener(state(connectivity.TransientFailure))
	child.say(connectivity.Ready, inTurn(&open, made[0], made[2]))
	res, err := conn.pick(record.Hedge(t.Context()))
	if err != nil || res.SubConn != conn.made[2] || open != 2 {
		t.Errorf("the hedge goes to %p of %v, %v; %d picks are open", res.SubConn, conn.made, err, open)
	}
}

// TestAsked_Bounded has a child that always picks the same of two connections. It is asked 16 times
// for an attempt at most, and seldom if that never helps. Each pick is given back or used.
func TestAsked_Bounded(t *testing.T) {
	conn, child, made := buildReady(t, 2)
	asked, open, most, all := 0, 0, 0, 0
	first := inTurn(&open, made[0])
	child.say(connectivity.Ready, funcPicker(func() (grpcbalancer.PickResult, error) { asked++; return first() }))
	const hedges = 1000
	for range hedges {
		ctx, record := place.Primary(t.Context(), conn.Target(), new(atomic.Int64), false)
		for _, ctx := range []context.Context{ctx, record.Hedge(t.Context())} {
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
