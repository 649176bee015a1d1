package balancer_test

import (
	"fmt"
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
	"github.com/grpchedge/hedge/stats"
)

// TestConnections counts connections, and the backends of attempts at the servers. One address
// stands for several backends.
func TestConnections(t *testing.T) {
	for _, tc := range []struct {
		child, fields string
		addresses     int
		want          int // connections
		primaries     int // different connections that primaries use
		met           int // different backends that the attempts of a call meet, of three attempts
		same          int64
	}{
		{pickFirst, `"connections": 1`, 1, 1, 1, 1, 2},
		{pickFirst, `"connections": 2`, 1, 2, 1, 2, 1},
		{pickFirst, `"connections": 8`, 1, 8, 1, 3, 0},
		{pickFirst, `"connections": 8, "spread": true`, 1, 8, 8, 3, 0},
		{roundRobin, `"connections": 3`, 1, 3, 1, 3, 0},
		{roundRobin, `"connections": 2, "spread": true`, 2, 4, 4, 3, 0},
		{stubborn, `"connections": 3`, 1, 3, 1, 3, 0},
	} {
		t.Run(fmt.Sprintf("%s,%s", tc.child, tc.fields), func(t *testing.T) {
			inBubble(t, func(t *testing.T, k kind) {
				const backends, calls, unhedged = 8, 40, 1000 // each connection is dealt a backend of its own
				cluster := testserver.StartT(t, testserver.Config{Backends: backends, InMemory: true,
					Script: func(a testserver.Attempt) testserver.Plan {
						if a.ID >= unhedged {
							return testserver.Plan{}
						}
						return lastAnswers(2)(a)
					}})
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(2))
				conn, d, _ := dialDealt(t, cluster, tc.addresses, true,
					append(hedgetest.Interceptors(s), with(tc.child, tc.fields))...)
				synctest.Wait()
				open, client := len(d.open()), testpb.NewTestServiceClient(conn)
				primaries := map[int]bool{}
				for id := range uint64(calls) {
					k.must(t, client, id)
					if at := visited(cluster, id); different(at) < tc.met {
						t.Errorf("call %d met the backends %v", id, at)
					}
				}
				for id := uint64(unhedged); id < unhedged+calls; id++ { // hedges are picks of the child's too
					k.must(t, client, id, hedge.Off())
					primaries[visited(cluster, id)[0]] = true
				}
				if open != tc.want || len(primaries) != tc.primaries {
					t.Errorf("%d connections, want %d; primaries met %d backends, want %d", open, tc.want,
						len(primaries), tc.primaries)
				}
				row := s.Methods()[0]
				if row.SameBackend != tc.same*calls || row.Connections != tc.want || row.Ready != tc.addresses ||
					row.SingleConnection != (tc.want == 1) {
					t.Errorf("%+v", row)
				}
				if conn.Close(); len(d.open()) != 0 {
					t.Errorf("%d connections are open after the close", len(d.open()))
				}
			})
		})
	}
}

// TestConnections_Resized changes the number of connections, and the addresses.
func TestConnections_Resized(t *testing.T) {
	inBubble(t, func(t *testing.T, k kind) {
		cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true})
		conn, d, names := dialDealt(t, cluster, 3, false,
			append(hedgetest.Interceptors(hedgetest.Fixed(t, 10*ms)), over(roundRobin))...)
		client := testpb.NewTestServiceClient(conn)
		for i, step := range []struct {
			addresses     int
			child, fields string
			want          int
		}{
			{3, roundRobin, `"connections": 2`, 6},
			{2, roundRobin, `"connections": 2`, 4},
			{3, roundRobin, `"connections": 8`, 24},
			{3, roundRobin, `"connections": 3, "spread": true`, 9},
			{3, leastRequest, `"connections": 2`, 6},
			{3, pickFirst, `"connections": 2`, 2},
			{3, roundRobin, `"silence": false`, 3},
		} {
			reconfigure(names, addresses(cluster, step.addresses, 0), step.child, step.fields)
			synctest.Wait()
			if open := len(d.open()); open != step.want {
				t.Errorf("step %d: %d connections, want %d", i, open, step.want)
			}
			for id := range uint64(20) {
				if _, err := k.call(t.Context(), client, &testpb.Request{Id: id}); err != nil {
					t.Errorf("step %d: %v", i, err)
				}
			}
		}
	})
}

// TestConnections_Lost ends connections one by one during calls, by GOAWAY and without notice. No
// call that can be sent again fails. Every connection is made again when a call begins, until the
// channel is idle.
func TestConnections_Lost(t *testing.T) {
	for _, child := range []string{pickFirst, roundRobin} {
		t.Run(child, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k kind) {
				cluster := testserver.StartT(t,
					testserver.Config{Backends: 2, InMemory: true, Script: func(a testserver.Attempt) testserver.Plan {
						return testserver.Plan{Delay: ms, GoAway: a.ID%50 == 49 && a.Number == 0}
					}})
				conn, d, _ := dialDealt(t, cluster, 1, true,
					append(hedgetest.Interceptors(hedgetest.Fixed(t, 10*ms)),
						with(child, `"connections": 2, "spread": true`),
						grpc.WithIdleTimeout(time.Minute), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))...)
				synctest.Wait()
				client := testpb.NewTestServiceClient(conn)
				for id := range uint64(500) {
					k.must(t, client, id)
					if id%50 == 49 {
						time.Sleep(ms)
						for i := range cluster.Backends() {
							if err := cluster.Restart(i); err != nil {
								t.Fatal(err)
							}
						}
						time.Sleep(3 * time.Second) // gRPC backs off after attempts to connect that failed
						k.must(t, client, 1)
						time.Sleep(ms)
						if open := len(d.open()); open != 2 {
							t.Errorf("after call %d: %d connections", id, open)
						}
					}
				}
				time.Sleep(2 * time.Minute)
				if open := len(d.open()); open != 0 || conn.GetState() != connectivity.Idle {
					t.Errorf("left alone: %d connections, %v", open, conn.GetState())
				}
				k.must(t, client, 1)
				time.Sleep(ms)
				if open := len(d.open()); open != 2 {
					t.Errorf("in use again: %d connections", open)
				}
			})
		})
	}
}

// TestSingleConnection checks that SingleConnection is reported if the hedges of a connection, or of
// each connection of a client library's pool, cannot leave it.
func TestSingleConnection(t *testing.T) {
	for _, tc := range []struct {
		option grpc.DialOption
		pool   int
		calls  uint64
		want   bool
	}{
		{bare(pickFirst), 1, 16, true},
		{bare(pickFirst), 1, 15, false},
		{bare(roundRobin), 1, 40, false},
		{bare(pickFirst), 10, 40, true},
		{bare(roundRobin), 10, 40, false},
		{over(pickFirst), 10, 40, true},
		{over(roundRobin), 10, 40, false},
		{with(pickFirst, `"connections": 2`), 10, 40, false},
	} {
		inBubble(t, func(t *testing.T, k kind) {
			s := hedgetest.Fixed(t, 10*ms)
			cluster, client := play(t, testserver.Config{Backends: 3, Script: lastAnswers(1)}, s, tc.option)
			clients := []testpb.TestServiceClient{client}
			for len(clients) < tc.pool {
				conn := cluster.ClientT(t, append(hedgetest.Interceptors(s), tc.option)...)
				testserver.ConnectT(t, conn)
				clients = append(clients, testpb.NewTestServiceClient(conn))
			}
			synctest.Wait()
			for id := range tc.calls {
				k.must(t, clients[id%uint64(tc.pool)], id)
			}
			synctest.Wait()
			if row := s.Methods()[0]; row.SingleConnection != tc.want {
				t.Errorf("%+v: %+v", tc, row.Backends)
			}
		})
	}
}

// TestServiceAddress has one address deal connections to three backends. The backend of the first
// connection is stalled for 1 s in every 5.
func TestServiceAddress(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	inBubble(t, func(t *testing.T, k kind) {
		run := func(option grpc.DialOption, opts ...hedge.Option) (time.Duration, stats.Method) {
			s := hedgetest.All(t, opts...)
			cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true, Seed: 1})
			conn, _, _ := dialDealt(t, cluster, 1, true, append(hedgetest.Interceptors(s), option)...)
			synctest.Wait()
			client := testpb.NewTestServiceClient(conn)
			if _, err := k.call(t.Context(), client, &testpb.Request{Id: 1 << 40}); err != nil {
				t.Fatal(err)
			}
			script, stalls := standstill(testserver.LogNormal(ms, ms/2), 4*time.Second)(time.Now()), visited(cluster, 1<<40)[0]
			cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
				a.Backend -= stalls // the one that is used is the first of the script
				return script(a)
			})
			all := traffic{kind: k, rate: 500, lasts: 10 * time.Second, deadline: time.Minute,
				rng: generator(1, 2)}.run(t, client)
			return all.Tail(0.99), s.Methods()[0]
		}
		plain, _ := run(bare(pickFirst), hedge.WithMaxHedges(0))
		one, _ := run(bare(pickFirst))
		two, row := run(with(pickFirst, `"connections": 2`))
		t.Logf("p99 %v plain, %v hedged over one connection, %v over two; %.1f%% extra load, %d of %d primaries moved",
			plain, one, two, 100*row.HedgeRate(), row.Moved, row.Calls)
		if two > plain/10 || row.Moved == 0 {
			t.Errorf("p99 %v plain, %v over two connections", plain, two)
		}
	})
}

// TestVanishingPackets drops the packets of the first connection during traffic. It compares the
// latency in the next seconds with the time that gRPC needs to notice.
func TestVanishingPackets(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	for _, tc := range longtest.First(1, []struct {
		name            string
		sending, coming bool
		keepalive       bool
	}{
		{"both ways", true, true, false},
		{"both ways, with keepalive", true, true, true},
		{"sent", true, false, false},
		{"received, with keepalive", false, true, true},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k kind) {
				run := func(option grpc.DialOption, hedges int) (tail, noticed time.Duration) {
					s := hedgetest.All(t, hedge.WithMaxHedges(hedges))
					cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true, Seed: 1,
						Latency: testserver.LogNormal(ms, ms/2),
						ServerOptions: []grpc.ServerOption{
							grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second})}})
					options := append(hedgetest.Interceptors(s), option)
					if tc.keepalive {
						options = append(options,
							grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second,
								Timeout: 5 * time.Second}))
					}
					conn, d, _ := dialDealt(t, cluster, 1, true, options...)
					client := testpb.NewTestServiceClient(conn)
					pace := func() simulation.Calls {
						return traffic{kind: k, rate: 500, lasts: 5 * time.Second, deadline: time.Minute, rng: generator(1, 2),
							may: []codes.Code{codes.DeadlineExceeded, codes.Unavailable}}.run(t, client)
					}
					pace()
					first := d.open()[0]
					lost := time.Now()
					first.sending.Store(tc.sending)
					first.coming.Store(tc.coming)
					all := pace()
					if !tc.keepalive || hedges > 0 { // unnoticed otherwise
						_ = conn.Close()
					}
					<-first.closed
					return all.Tail(0.99), time.Since(lost)
				}
				_, noticed := run(bare(pickFirst), 0)
				tail, _ := run(with(pickFirst, `"connections": 2`), 2)
				t.Logf("gRPC noticed after %v; p99 of the next seconds %v", noticed, tail)
				if tail > noticed*3/100 || noticed < 5*time.Second {
					t.Errorf("gRPC noticed after %v; p99 of the next seconds %v", noticed, tail)
				}
			})
		})
	}
}
