package compat_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

// These are what docs/chaining.md says about dial options that gRPC replaces, or ignores, without a message.

// hedging returns a scheduler that sends one hedge, after delay.
func hedging(t *testing.T, options ...hedge.Option) *hedge.Scheduler {
	t.Helper()
	return hedgetest.Fixed(t, delay, append([]hedge.Option{hedge.WithMaxHedges(1)}, options...)...)
}

// TestResolversServiceConfig has a resolver that brings a service config. The default one, which names the policy that
// sends hedges elsewhere, is then ignored, unless the resolver's is.
func TestResolversServiceConfig(t *testing.T) {
	elsewhere := fmt.Sprintf(`{"loadBalancingConfig": [{%q: {"childPolicy": [{"round_robin": {}}]}}]}`, balancer.Name)
	for _, tc := range []struct {
		name     string
		brings   string
		options  []grpc.DialOption
		hedges   int64
		backends int // that the scheduler knows of
	}{
		{"no config", "", nil, 1, 2},
		{"a config", `{"loadBalancingConfig": [{"round_robin": {}}]}`, nil, 0, 0},
		{"an empty config", `{}`, nil, 0, 0},
		{"a config that is disabled", `{"loadBalancingConfig": [{"round_robin": {}}]}`, []grpc.DialOption{grpc.WithDisableServiceConfig()}, 1, 2},
		{"a config that names the policy", elsewhere, nil, 1, 2},
	} {
		eachKind(t, tc.name, func(t *testing.T, call call) {
			w := &world{Cluster: testserver.StartT(t, testserver.Config{InMemory: true, Backends: 2, Latency: testserver.Constant(time.Second)}),
				scheduler: hedging(t, hedge.WithOtherBackendOnly(true))}
			names := manual.NewBuilderWithScheme("resolves")
			var state resolver.State
			for backend := range w.Backends() {
				state.Addresses = append(state.Addresses, resolver.Address{Addr: w.Address(backend)})
			}
			names.BuildCallback = func(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) {
				if tc.brings != "" {
					state.ServiceConfig = cc.ParseServiceConfig(tc.brings)
				}
				names.InitialState(state)
			}
			conn, err := grpc.NewClient("resolves:///backends", append(tc.options, grpc.WithResolvers(names),
				grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(elsewhere),
				grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return w.Dial(ctx, address) }),
				grpc.WithChainUnaryInterceptor(interceptor.Unary(w.scheduler)), grpc.WithChainStreamInterceptor(stream.Interceptor(w.scheduler)))...)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			testserver.ConnectT(t, conn)
			synctest.Wait()
			w.client = testpb.NewTestServiceClient(conn)
			if o := call(w, t.Context(), request()); o.err != nil {
				t.Error(o.err)
			}
			row := w.scheduler.Methods()[0]
			if row.Hedges != tc.hedges || row.Ready != tc.backends || row.NoOtherBackend != 1-tc.hedges {
				t.Errorf("%d hedges, %d held back, %d backends", row.Hedges, row.NoOtherBackend, row.Ready)
			}
		})
	}
}
