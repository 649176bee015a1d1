package balancer_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestSingleConnection has it said that hedges meet the same backend, with the policy and without.
func TestSingleConnection(t *testing.T) {
	bare := func(child string) grpc.DialOption {
		return grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [%s]}`, child))
	}
	for _, tc := range []struct {
		name   string
		option grpc.DialOption
		calls  uint64
		want   bool
	}{
		{"pick_first", bare(pickFirst), 16, true},
		{"pick_first, few hedges", bare(pickFirst), 15, false},
		{"round robin", bare(roundRobin), 40, false},
		{"the policy over pick_first", over(pickFirst), 1, true},
		{"the policy with two connections", with(pickFirst, `"connections": 2`), 40, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, k kind) {
				cluster := testserver.StartT(t, testserver.Config{Backends: 3, InMemory: true, Script: lastAnswers(1)})
				s := hedgetest.Fixed(t, 10*ms)
				conn, _, _ := dialDealt(t, cluster, 3, true, append(hedgetest.Interceptors(s), tc.option)...)
				synctest.Wait()
				client := testpb.NewTestServiceClient(conn)
				for id := range tc.calls {
					if _, err := k.call(t.Context(), client, &testpb.Request{Id: id}); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				if row := s.Methods()[0]; row.SingleConnection != tc.want {
					t.Errorf("%+v", row)
				}
			})
		})
	}
}
