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

// TestDiscardedPicksAreReleased counts at the child: Done is called once for each pick, with an
// empty DoneInfo if and only if the pick is not used.
func TestDiscardedPicksAreReleased(t *testing.T) {
	for _, tc := range []struct {
		backends int
		only     bool
	}{{1, false}, {3, false}, {3, true}} {
		inBubble(t, func(t *testing.T, k kind) {
			const calls, hedges = 50, 2
			backends := tc.backends
			counts.picks.Store(0)
			counts.dones.Store(0)
			counts.unused.Store(0)
			cluster := testserver.StartT(t, testserver.Config{Backends: backends, InMemory: true, Script: lastAnswers(hedges)})
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(hedges), hedge.WithOtherBackendOnly(tc.only))
			client := testpb.NewTestServiceClient(dial(t, cluster, s, over(counting)))
			synctest.Wait()
			for id := range uint64(calls) {
				k.must(t, client, id)
			}
			synctest.Wait()
			picks, dones, unused := counts.picks.Load(), counts.dones.Load(), counts.unused.Load()
			t.Logf("%d backends: %d picks for %d attempts, %d of them released", backends, picks, calls*(hedges+1), unused)
			if dones != picks || counts.twice.Load() {
				t.Errorf("%d picks were done %d times; one of them twice: %v", picks, dones, counts.twice.Load())
			}
			if unused != picks-calls*(hedges+1) || (unused > 0) != (backends > 1) {
				t.Errorf("%d picks were released, for %d picks", unused, picks)
			}
		})
	}
}

// TestReservedPicksAreReleased has hedges that fail before they pick. The caller of a stream asks
// for its headers alone, and then gives up.
func TestReservedPicksAreReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, k kind) {
		counts.picks.Store(0)
		counts.dones.Store(0)
		cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true, Latency: testserver.Constant(30 * ms)})
		failed := func(ctx context.Context) bool {
			md, _ := metadata.FromOutgoingContext(ctx)
			return len(md.Get(rpc.AttemptsHeader)) > 0
		}
		conn := dial(t, cluster, hedgetest.Fixed(t, 10*ms, hedge.WithOtherBackendOnly(true)), over(counting),
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
				cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if failed(ctx) {
					return errFake
				}
				return invoke(ctx, method, req, reply, cc, opts...)
			}),
			grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
				method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				if failed(ctx) {
					return nil, errFake
				}
				return open(ctx, desc, cc, method, opts...)
			}))
		client := testpb.NewTestServiceClient(conn)
		synctest.Wait()
		k.must(t, client, 1)
		ctx, cancel := context.WithCancel(t.Context())
		st, err := client.ServerStream(ctx, &testpb.Request{Messages: 1})
		if err == nil {
			_, err = st.Header()
		}
		cancel()
		synctest.Wait()
		if picks, dones := counts.picks.Load(), counts.dones.Load(); err != nil || picks < 4 || dones != picks {
			t.Errorf("%d picks were done %d times; %v", picks, dones, err)
		}
	})
}

// funcPicker picks by a function.
type funcPicker func() (grpcbalancer.PickResult, error)

func (p funcPicker) Pick(grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) { return p() }

// TestPicker_NoPickHalfWay has a child that picks the first of two backends only, and returns no
// pick at some point of a search. The hedge then uses the child's first pick.
func TestPicker_NoPickHalfWay(t *testing.T) {
	conn, b, configure := build(t)
	defer b.Close()
	_ = configure(`{"childPolicy": [{"outlier_detection_experimental": {"mark": "x"}}]}`)
	child := fakes["outlier_detection_experimental"]
	var made []grpcbalancer.SubConn
	for i, address := range []string{"one", "two"} {
		made = append(made, newSubConn(t, child, address, nil))
		conn.made[i].listener(state(connectivity.Ready))
	}
	picks, none, open := 0, 0, 0
	child.say(connectivity.Ready, funcPicker(func() (grpcbalancer.PickResult, error) {
		if picks++; picks == none {
			return grpcbalancer.PickResult{}, grpcbalancer.ErrNoSubConnAvailable
		}
		open++
		return grpcbalancer.PickResult{SubConn: made[0], Done: func(grpcbalancer.DoneInfo) { open-- }}, nil
	}))
	for none = range 5 {
		picks, open = 0, 0
		ctx, record := place.Primary(t.Context(), conn.Target(), new(atomic.Int64), false)
		res, err := conn.picker.Pick(grpcbalancer.PickInfo{Ctx: ctx})
		if err == nil {
			res, err = conn.picker.Pick(grpcbalancer.PickInfo{Ctx: record.Hedge(t.Context())})
		}
		if first := none == 1 || none == 2; first != (err != nil) || !first && (res.SubConn != conn.made[0] || open != 2) {
			t.Errorf("no pick %d: the hedge goes to %p of %v, %v; %d picks are open", none, res.SubConn, conn.made, err, open)
		}
	}
}

// TestPicker_ReservedIsLost loses the connection that was reserved for a hedge before the hedge
// picks. The hedge uses another one.
func TestPicker_ReservedIsLost(t *testing.T) {
	conn, b, configure := build(t)
	defer b.Close()
	_ = configure(fakeA)
	child := fakes["test_fake_a"]
	var made []grpcbalancer.SubConn
	for i, address := range []string{"one", "two", "three"} {
		made = append(made, newSubConn(t, child, address, nil))
		conn.made[i].listener(state(connectivity.Ready))
	}
	open := 0
	inTurn := func(of ...grpcbalancer.SubConn) funcPicker {
		next := -1
		return func() (grpcbalancer.PickResult, error) {
			next++
			open++
			return grpcbalancer.PickResult{SubConn: of[next%len(of)], Done: func(grpcbalancer.DoneInfo) { open-- }}, nil
		}
	}
	child.say(connectivity.Ready, inTurn(made...))
	ctx, record := place.Primary(t.Context(), conn.Target(), new(atomic.Int64), true)
	if res, err := conn.picker.Pick(grpcbalancer.PickInfo{Ctx: ctx}); err != nil ||
		res.SubConn != conn.made[0] || !record.Reserve() || open != 2 {
		t.Fatalf("%v, %v; %d picks are open", res.SubConn, err, open)
	}
	conn.made[1].listener(state(connectivity.TransientFailure))
	child.say(connectivity.Ready, inTurn(made[0], made[2]))
	res, err := conn.picker.Pick(grpcbalancer.PickInfo{Ctx: record.Hedge(t.Context())})
	if err != nil || res.SubConn != conn.made[2] || open != 2 {
		t.Errorf("the hedge goes to %p of %v, %v; %d picks are open", res.SubConn, conn.made, err, open)
	}
}
