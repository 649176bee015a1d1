package main

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/randomsubsetting"
	_ "google.golang.org/grpc/balancer/ringhash"
	_ "google.golang.org/grpc/balancer/weightedroundrobin"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	_ "github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

// TestHedgeGoesElsewhere_MoreChildren checks that each attempt of a call goes to another backend if
// the child returns one, and that a ring hash keeps the owner of a key. It covers gRPC's balancing
// policies with dependencies that the core module does not have; the tests of package balancer
// cover the others.
func TestHedgeGoesElsewhere_MoreChildren(t *testing.T) {
	const backends, hedges, calls = 5, 2, 50
	for _, tc := range []struct {
		name, config string
		met          int   // backends that the attempts of a call meet
		same         int64 // hedges of a call that use a used connection
	}{
		{name: "weighted_round_robin", config: `{"hedge_other_backend": {"childPolicy": [{"weighted_round_robin": {}}]}}`,
			met: hedges + 1},
		{name: "ring_hash",
			config: `{"hedge_other_backend": {"childPolicy": [{"ring_hash_experimental": {"requestHashHeader": ` +
				`"key"}}]}}`, met: 1, same: hedges},
		{name: "ring_hash without a key",
			config: `{"hedge_other_backend": {"childPolicy": [{"ring_hash_experimental": {"requestHashHeader": ` +
				`"none"}}]}}`, met: hedges + 1},
		{name: "ring_hash, three connections",
			config: `{"hedge_other_backend": {"childPolicy": [{"ring_hash_experimental": {"requestHashHeader": "key"}}], ` +
				`"connections": 3}}`, met: 1},
		{name: "below random_subsetting",
			config: `{"random_subsetting_experimental": {"subsetSize": 3, "childPolicy": [{"hedge_other_backend": ` +
				`{"childPolicy": [{"round_robin": {}}]}}]}}`, met: hedges + 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := testserver.StartT(t, testserver.Config{Backends: backends, InMemory: true})
				s, err := hedge.New(hedge.WithAllMethods(), hedge.WithWarmup(1<<30, 10*time.Millisecond),
					hedge.WithBudgetPercent(400), hedge.WithMaxHedges(hedges))
				if err != nil {
					t.Fatal(err)
				}
				conn := cluster.ClientT(t, grpc.WithUnaryInterceptor(interceptor.Unary(s)),
					grpc.WithStreamInterceptor(stream.Interceptor(s)),
					grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [%s]}`, tc.config)))
				client := testpb.NewTestServiceClient(conn)
				// A ring connects to a backend when the first call's hash is there.
				for i := range 200 {
					ctx := metadata.AppendToOutgoingContext(t.Context(), "key", fmt.Sprint(i))
					if _, err := client.Unary(ctx, &testpb.Request{Id: 1000}, grpc.WaitForReady(true), hedge.Off()); err != nil {
						t.Fatal(err)
					}
				}
				cluster.Reset()
				cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
					if a.Number == hedges {
						return testserver.Plan{}
					}
					return testserver.Plan{Ending: testserver.Hang}
				})
				for id := range uint64(calls) {
					ctx := metadata.AppendToOutgoingContext(t.Context(), "key", "always the same")
					if id%2 == 0 {
						_, err = client.Unary(ctx, &testpb.Request{Id: id})
					} else {
						var st grpc.ServerStreamingClient[testpb.Reply]
						if st, err = client.ServerStream(ctx, &testpb.Request{Id: id, Messages: 1}); err == nil {
							_, err = st.Recv()
						}
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				primaries := map[int]int{}
				for id := range uint64(calls) {
					met := map[int]bool{}
					for _, r := range cluster.RecordsOf(id) {
						met[r.Backend] = true
						if r.Number == 0 {
							primaries[r.Backend]++
						}
					}
					if len(met) != tc.met {
						t.Errorf("call %d met %v", id, met)
					}
				}
				t.Logf("the primaries went to %v; %d hedges, %d met a used backend", primaries, s.Stats().Hedges,
					s.Stats().SameBackend)
				if stats := s.Stats(); stats.Hedges != hedges*calls || stats.SameBackend != tc.same*calls {
					t.Errorf("%+v, want %d hedges, %d of them over a used connection", stats, hedges*calls, tc.same*calls)
				}
			})
		})
	}
}
