package main

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/randomsubsetting"
	_ "google.golang.org/grpc/balancer/ringhash"
	_ "google.golang.org/grpc/balancer/weightedroundrobin"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	_ "github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestHedgeGoesElsewhere_MoreChildren checks that each attempt of a call goes to another backend if
// the child returns one, and that a ring hash keeps the owner of a key. It covers gRPC's balancing
// policies with dependencies that the core module does not have; the tests of package balancer
// cover the others.
func TestHedgeGoesElsewhere_MoreChildren(t *testing.T) {
	const backends, hedges, calls = 5, 2, 25
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
			hedgetest.EachKind(t, func(t *testing.T, k hedgetest.Kind) {
				cluster := testserver.StartT(t, testserver.Config{Backends: backends, InMemory: true})
				s := hedgetest.Fixed(t, 10*time.Millisecond, hedge.WithMaxHedges(hedges))
				client := testpb.NewTestServiceClient(cluster.ClientT(t, append(hedgetest.Interceptors(s),
					grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [%s]}`, tc.config)))...))
				call := func(key string, id uint64, opts ...grpc.CallOption) {
					ctx := metadata.AppendToOutgoingContext(t.Context(), "key", key)
					if _, err := k(ctx, client, &testpb.Request{Id: id}, opts...); err != nil {
						t.Fatal(err)
					}
				}
				// A ring connects to a backend when the first call's hash is there.
				for i := range 200 {
					call(fmt.Sprint(i), 1000, grpc.WaitForReady(true), hedge.Off())
				}
				cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
					if a.Number == hedges {
						return testserver.Plan{}
					}
					return testserver.Plan{Ending: testserver.Hang}
				})
				for id := range uint64(calls) {
					call("always the same", id)
					met := map[int]bool{}
					for _, r := range cluster.RecordsOf(id) {
						met[r.Backend] = true
					}
					if len(met) != tc.met {
						t.Errorf("call %d met the backends %v, want %d", id, met, tc.met)
					}
				}
				if stats := s.Stats(); stats.Hedges != hedges*calls || stats.SameBackend != tc.same*calls {
					t.Errorf("%+v, want %d hedges, %d of them over a used connection", stats, hedges*calls, tc.same*calls)
				}
			})
		})
	}
}
