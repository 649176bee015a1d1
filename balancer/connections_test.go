package balancer_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestConnections counts connections, and the backends of attempts at the servers. One address
// stands for several backends, and each connection is dealt a backend of its own.
func TestConnections(t *testing.T) {
	for _, tc := range []struct {
		policy    string
		addresses int
		want      int // connections
		primaries int // different connections that primaries use
		met       int // different backends that the attempts of a call meet, of three attempts
		same      int64
	}{
		{policy: wrapped(pickFirst, `"connections": 2`), addresses: 1, want: 2, primaries: 1, met: 2, same: 1},
		{policy: wrapped(pickFirst, `"connections": 8`), addresses: 1, want: 8, primaries: 1, met: 3},
		{policy: wrapped(roundRobin, `"connections": 3`), addresses: 1, want: 3, primaries: 1, met: 3},
		{policy: wrapped(roundRobin, `"connections": 2`), addresses: 2, want: 4, primaries: 2, met: 3},
		{policy: wrapped(stubborn, `"connections": 3`), addresses: 1, want: 3, primaries: 1, met: 3},
	} {
		hedgetest.Run(t, tc.policy, func(t *testing.T) {
			const calls, unhedged = 16, 1000
			cluster := testserver.StartT(t, testserver.Config{Backends: 8, InMemory: true,
				Script: func(a testserver.Attempt) testserver.Plan {
					if a.ID >= unhedged {
						return testserver.Plan{}
					}
					return lastAnswers(2)(a)
				}})
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(2))
			d := dial(t, cluster, tc.addresses, true, append(hedgetest.Interceptors(s), bare(tc.policy))...)
			d.connect(t)
			primaries := map[int]bool{}
			for id := range uint64(calls) {
				unary.must(t, d.client, id)
				if at := visited(cluster, id); different(at) < tc.met {
					t.Errorf("call %d met the backends %v", id, at)
				}
			}
			for id := uint64(unhedged); id < unhedged+calls; id++ { // hedges are picks of the child's too
				unary.must(t, d.client, id, hedge.Off())
				primaries[visited(cluster, id)[0]] = true
			}
			if d.open() != tc.want || len(primaries) != tc.primaries {
				t.Errorf("%d connections, want %d; primaries met %d backends, want %d", d.open(), tc.want,
					len(primaries), tc.primaries)
			}
			row := s.Methods()[0]
			if row.SameBackend != tc.same*calls || row.Connections != tc.want || row.Ready != tc.addresses {
				t.Errorf("the row is %+v, want %d connections, %d addresses, and %d hedges over a used one", row, tc.want,
					tc.addresses, tc.same*calls)
			}
			if d.conn.Close(); d.open() != 0 {
				t.Errorf("%d connections are open after the close", d.open())
			}
		})
	}
}

func TestConnections_Resized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dial(t, testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true}), 3, false,
			append(hedgetest.Interceptors(hedgetest.Fixed(t, 10*ms)), over(roundRobin))...)
		d.connect(t)
		for i, step := range []struct {
			addresses int
			policy    string
			want      int
		}{
			{3, wrapped(roundRobin, `"connections": 2`), 6},
			{2, wrapped(roundRobin, `"connections": 2`), 4},
			{3, wrapped(roundRobin, `"connections": 8`), 24},
			{3, wrapped(roundRobin, `"connections": 3`), 9},
			{3, wrapped(leastRequest, `"connections": 2`), 6},
			{3, wrapped(pickFirst, `"connections": 2`), 2},
			{3, wrapped(roundRobin), 3},
		} {
			d.reconfigure(step.addresses, 0, step.policy)
			if synctest.Wait(); d.open() != step.want {
				t.Errorf("step %d: %d connections, want %d", i, d.open(), step.want)
			}
			for id := range uint64(20) {
				unary.must(t, d.client, id)
			}
		}
	})
}

// TestConnections_Lost ends connections during calls, by GOAWAY and without notice. No call that can
// be sent again fails. Every connection is made again when a call begins, until the channel is idle.
func TestConnections_Lost(t *testing.T) {
	for _, child := range []string{pickFirst, roundRobin} {
		hedgetest.Run(t, child, func(t *testing.T) {
			cluster := testserver.StartT(t,
				testserver.Config{Backends: 2, InMemory: true, Script: func(a testserver.Attempt) testserver.Plan {
					return testserver.Plan{Delay: ms, GoAway: a.ID%10 == 9 && a.Number == 0}
				}})
			d := dial(t, cluster, 1, true, append(hedgetest.Interceptors(hedgetest.Fixed(t, 10*ms)),
				over(child, `"connections": 2`),
				grpc.WithIdleTimeout(time.Minute), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))...)
			d.connect(t)
			again := func(when string) {
				unary.must(t, d.client, 1)
				if time.Sleep(ms); d.open() != 2 {
					t.Errorf("%s: %d connections", when, d.open())
				}
			}
			for id := range uint64(100) {
				if unary.must(t, d.client, id); id%10 == 9 {
					time.Sleep(ms)
					for i := range cluster.Backends() {
						if err := cluster.Restart(i); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(3 * time.Second) // gRPC backs off after attempts to connect that failed
					again("after a loss")
				}
			}
			if time.Sleep(2 * time.Minute); d.open() != 0 || d.conn.GetState() != connectivity.Idle {
				t.Errorf("left alone: %d connections, %v", d.open(), d.conn.GetState())
			}
			again("in use again")
		})
	}
}

// TestConnections_LeftAlone has a server that closes connections on which nothing happens. They are
// made again when a call begins, and not before.
func TestConnections_LeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, ServerOptions: []grpc.ServerOption{
			grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 10 * time.Second})}})
		d := dial(t, cluster, 1, true, append(hedgetest.Interceptors(hedgetest.Fixed(t, 10*ms)),
			over(pickFirst, `"connections": 8`))...)
		for round := 1; round <= 3; round++ {
			unary.must(t, d.client, 1, grpc.WaitForReady(true))
			time.Sleep(ms)
			open := d.open()
			if time.Sleep(20 * time.Minute); open != 8 || len(d.wires) > round*8 {
				t.Errorf("round %d: %d connections, %d made, want 8", round, open, len(d.wires))
			}
		}
	})
}

// TestServiceAddress has one address deal connections to three backends. The backend of the first
// connection is stalled for 1 s in every 5.
func TestServiceAddress(t *testing.T) {
	simulated(t)
	synctest.Test(t, func(t *testing.T) {
		run := func(policy string, opts ...hedge.Option) time.Duration {
			s := hedgetest.All(t, opts...)
			cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true, Seed: 1})
			d := dial(t, cluster, 1, true, append(hedgetest.Interceptors(s), bare(policy))...)
			d.connect(t)
			const probe = 1 << 40
			unary.must(t, d.client, probe)
			script, used := stalling(testserver.LogNormal(ms, ms/2), 4*time.Second)(time.Now()), visited(cluster, probe)[0]
			cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
				a.Backend -= used // the one that is used is the first of the script
				return script(a)
			})
			return unary.traffic(t, d.client, simulation.Client{Rate: 500, Lasts: 10 * time.Second,
				Deadline: time.Minute, Seed: 1}).Tail(0.99)
		}
		plain, one, two := run(pickFirst, hedge.WithMaxHedges(0)), run(pickFirst), run(wrapped(pickFirst, `"connections": 2`))
		t.Logf("p99 %v plain, %v hedged over one connection, %v over two", plain, one, two)
		if two > plain/10 {
			t.Errorf("p99 %v plain, %v over two connections", plain, two)
		}
	})
}

// TestVanishingPackets drops the packets of one of two connections during traffic. Calls go on over
// the other one.
func TestVanishingPackets(t *testing.T) {
	simulated(t)
	for _, tc := range []struct {
		name            string
		hedges          bool // the connection of hedges, not of primaries
		stragglers      bool // so that hedges matter
		sending, coming bool
	}{
		{name: "of primaries", sending: true, coming: true}, {name: "of primaries, sent", sending: true},
		{name: "of primaries, received", coming: true},
		{name: "of primaries, with stragglers", stragglers: true, sending: true, coming: true},
		{name: "of hedges", hedges: true, stragglers: true, sending: true, coming: true},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			latency := testserver.LogNormal(ms, ms/2)
			if tc.stragglers {
				latency = testserver.Straggler(latency, 0.02, 50)
			}
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Seed: 1, CountsOnly: true, Latency: latency})
			d := dial(t, cluster, 1, true, append(hedgetest.Interceptors(hedgetest.All(t)),
				over(pickFirst, `"connections": 2`))...)
			d.connect(t)
			p99 := func() time.Duration {
				return unary.traffic(t, d.client, simulation.Client{Rate: 500, Lasts: 5 * time.Second, Deadline: time.Minute,
					Seed: 1}, codes.DeadlineExceeded).Tail(0.99)
			}
			before := p99()
			primaries, hedges := d.wires[0], d.wires[1]
			if hedges.written.Load() > primaries.written.Load() {
				primaries, hedges = hedges, primaries
			}
			lost := primaries
			if tc.hedges {
				lost = hedges
			}
			lost.sending.Store(tc.sending)
			lost.coming.Store(tc.coming)
			after := p99()
			t.Logf("p99 %v, %v in the next seconds", before, after)
			if after > 10*ms {
				t.Errorf("p99 %v, %v in the next seconds", before, after)
			}
			d.conn.Close()
		})
	}
}

// TestChurn_EveryField changes configurations and addresses as fast as calls are made. One call in
// a hundred never ends by itself, so that backends become silent and answer again while their
// connections are made, copied and closed. The race detector reports any field that is not guarded.
// No call may fail, because a backend with a removed address lets its calls end. The test runs in
// real time: it has more timers than the race detector of Go 1.26 can handle in a bubble.
func TestChurn_EveryField(t *testing.T) {
	const backends, callers = 5, 16
	updates := longtest.Table(64, 1_000, 10_000) // which is every child once
	cluster := testserver.StartT(t, testserver.Config{Backends: backends, InMemory: true, CountsOnly: true,
		Script: func(a testserver.Attempt) testserver.Plan {
			if a.ID%100 == 0 && a.Number == 0 {
				return testserver.Plan{Ending: testserver.Hang}
			}
			return testserver.Plan{}
		}})
	s := hedgetest.All(t, hedge.WithBudgetPercent(400), hedge.WithTrigger(hedge.Percentile(0.9)),
		hedge.WithWarmup(20, 20*ms),
		hedge.WithHedgeLimit(1_000_000, time.Second)) // connections end here for no reset
	d := dial(t, cluster, backends, false,
		append(hedgetest.Interceptors(s), over(roundRobin, `"connections": 2`),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))...)
	testserver.ConnectT(t, d.conn)
	calm, stop := context.WithCancel(t.Context())
	var next atomic.Int64
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for calm.Err() == nil {
				id := next.Add(1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if _, err := []kind{unary, stream}[id%10/9](ctx, d.client, &testpb.Request{Id: uint64(id)}); err != nil {
					t.Errorf("call %d: %v", id, err)
				}
				cancel()
			}
		})
	}
	children := []string{roundRobin, leastRequest, pickFirst, stubborn}
	for n := range updates {
		d.reconfigure(2+n%(backends-1), n, wrapped(children[n/16%len(children)],
			fmt.Sprintf(`"connections": %d, "silence": %v`, 1+n%4, n%8 != 0)))
		for at := next.Load() + 2; next.Load() < at; { // some calls between updates
			runtime.Gosched()
		}
	}
	stop()
	group.Wait()
	cluster.WaitIdleT(t)
	t.Logf("%d updates, %+v", updates, s.Stats())
	if s.Stats().Hedges == 0 {
		t.Error("nothing was hedged")
	}
	d.conn.Close()
	// gRPC closes a connection that was connecting, or had a call in it, on a goroutine of its own.
	for late := time.Now().Add(10 * time.Second); d.open() > 0; runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatalf("%d connections are open after the close", d.open())
		}
	}
}
