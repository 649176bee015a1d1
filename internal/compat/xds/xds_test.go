package xds_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	xdstype "github.com/cncf/xds/go/xds/type/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	wrr "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	_ "github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
)

const (
	ms      = time.Millisecond
	service = "hedged"
	node    = "client"
)

func packed(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// ads is a source of resources: the same stream as all others.
var ads = &core.ConfigSource{ResourceApiVersion: core.ApiVersion_V3,
	ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}}}

// listenerTo routes all calls of the service to a cluster, with a header as their hash.
func listenerTo(clusterName string) *listener.Listener {
	return &listener.Listener{Name: service,
		ApiListener: &listener.ApiListener{ApiListener: packed(&hcm.HttpConnectionManager{
			HttpFilters: []*hcm.HttpFilter{
				{Name: "router", ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: packed(&router.Router{})}}},
			RouteSpecifier: &hcm.HttpConnectionManager_RouteConfig{RouteConfig: &route.RouteConfiguration{
				Name: "routes",
				VirtualHosts: []*route.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: []*route.Route{{
					Match: &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{}},
					Action: &route.Route_Route{Route: &route.RouteAction{
						ClusterSpecifier: &route.RouteAction_Cluster{Cluster: clusterName},
						HashPolicy: []*route.RouteAction_HashPolicy{{PolicySpecifier: &route.RouteAction_HashPolicy_Header_{
							Header: &route.RouteAction_HashPolicy_Header{HeaderName: "key"}}}},
					}},
				}}}},
			}},
		})}}
}

// clusterOf returns a cluster with the policy hedge_other_backend over a child, in each locality if
// localities have weights.
func clusterOf(t *testing.T, name, child string, weighted bool) *cluster.Cluster {
	t.Helper()
	fields := &structpb.Struct{}
	if err := fields.UnmarshalJSON([]byte(fmt.Sprintf(`{"childPolicy": [%s], "connections": 2}`, child))); err != nil {
		t.Fatal(err)
	}
	policy := func(name string, m proto.Message) *cluster.LoadBalancingPolicy {
		return &cluster.LoadBalancingPolicy{Policies: []*cluster.LoadBalancingPolicy_Policy{{
			TypedExtensionConfig: &core.TypedExtensionConfig{Name: name, TypedConfig: packed(m)}}}}
	}
	p := policy("hedge", &xdstype.TypedStruct{TypeUrl: "type.googleapis.com/hedge_other_backend", Value: fields})
	if weighted {
		p = policy("localities", &wrr.WrrLocality{EndpointPickingPolicy: p})
	}
	return &cluster.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: ads},
		LoadBalancingPolicy:  p,
		OutlierDetection: &cluster.OutlierDetection{Interval: durationpb.New(time.Second),
			Consecutive_5Xx:            wrapperspb.UInt32(5),
			EnforcingFailurePercentage: wrapperspb.UInt32(100)},
	}
}

// endpointsOf are some backends, two to a locality of equal weight.
func endpointsOf(t *testing.T, name string, addresses []string) *endpoint.ClusterLoadAssignment {
	t.Helper()
	e := &endpoint.ClusterLoadAssignment{ClusterName: name}
	for i, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(port)
		if i%2 == 0 {
			e.Endpoints = append(e.Endpoints, &endpoint.LocalityLbEndpoints{
				Locality: &core.Locality{Region: fmt.Sprint("region-", i/2)}, LoadBalancingWeight: wrapperspb.UInt32(1)})
		}
		l := e.Endpoints[len(e.Endpoints)-1]
		l.LbEndpoints = append(l.LbEndpoints,
			&endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
				Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
					Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(n)}}}}}}})
	}
	return e
}

// mesh is a management server and its resources.
type mesh struct {
	cache   cache.SnapshotCache
	address string
	version int
}

func startMesh(t *testing.T) *mesh {
	t.Helper()
	m := &mesh{cache: cache.NewSnapshotCache(true, cache.IDHash{}, nil)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	ctx, cancel := context.WithCancel(context.Background())
	discovery.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(ctx, m.cache, nil))
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { cancel(); s.Stop() })
	m.address = l.Addr().String()
	return m
}

// say has clients know a listener, a cluster and its endpoints.
func (m *mesh) say(t *testing.T, c *cluster.Cluster, e *endpoint.ClusterLoadAssignment) {
	t.Helper()
	m.version++
	snapshot, err := cache.NewSnapshot(fmt.Sprint(m.version), map[resource.Type][]types.Resource{
		resource.ListenerType: {listenerTo(c.Name)}, resource.ClusterType: {c}, resource.EndpointType: {e}})
	if err == nil {
		err = m.cache.SetSnapshot(context.Background(), node, snapshot)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *mesh) dial(t *testing.T, s *hedge.Scheduler) testpb.TestServiceClient {
	t.Helper()
	names, err := xds.NewXDSResolverWithConfigForTesting([]byte(fmt.Sprintf(`{"node": {"id": %q},
		"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}],
		"server_features": ["xds_v3"]}]}`, node, m.address)))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+service, grpc.WithResolvers(names),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return testpb.NewTestServiceClient(conn)
}

// TestMesh makes calls through a real xds:/// channel with a policy named by the management server.
// Only hedges answer, so that each call shows where its hedge went. Then the cluster changes while
// calls run, and no call fails.
func TestMesh(t *testing.T) {
	for _, tc := range []struct {
		name, child string
		weighted    bool
		backends    int // that the policy of one place in the tree knows, each over two connections
	}{
		{name: "round robin", child: roundRobin, backends: 4},
		{name: "round robin, localities with weights", child: roundRobin, weighted: true, backends: 4},
		{name: "outlier detection below", child: fmt.Sprintf(outliers, roundRobin), backends: 4},
		{name: "ring hash", child: `{"ring_hash_experimental": {}}`, backends: 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const changes = 2000  // the first call during the change
			var moved atomic.Bool // to the second cluster
			backends := testserver.StartT(t, testserver.Config{Backends: 6, Script: func(a testserver.Attempt) testserver.Plan {
				if a.Backend >= 4 {
					moved.Store(true)
				}
				switch {
				case a.Number == 0 && a.ID < changes:
					return testserver.Plan{Ending: testserver.Hang}
				case a.Number == 0: // its hedge may meet the error below
					return testserver.Plan{Delay: time.Second}
				}
				return testserver.Plan{}
			}})
			var addresses []string
			for i := range backends.Backends() {
				addresses = append(addresses, backends.Address(i))
			}
			m := startMesh(t)
			m.say(t, clusterOf(t, "first", tc.child, tc.weighted), endpointsOf(t, "first", addresses[:4]))
			s := hedgetest.Fixed(t, 20*ms, hedge.WithMaxHedges(1)) // a second one, on a busy machine, has no third connection
			client := m.dial(t, s)
			call := func(id uint64) {
				t.Helper()
				_, err := client.Unary(t.Context(), &testpb.Request{Id: id}, grpc.WaitForReady(true))
				switch {
				case err == nil:
				case strings.Contains(err.Error(), "unknown cluster selected for RPC"):
					// gRPC's cluster manager, above the policy, returns this error for calls that
					// begin while it adds the new cluster.
					t.Logf("call %d: %v", id, err)
				default:
					t.Errorf("call %d: %v", id, err)
				}
			}
			for id := range uint64(300) { // gRPC connects lazily to the backend of a hash
				call(1000 + id)
				if row := s.Methods()[0]; row.Ready == tc.backends {
					break
				}
			}
			again := s.Stats().SameBackend
			const calls = 40
			arrived, elsewhere := 0, 0 // calls with two attempts that began at a server, and at two servers
			for id := range uint64(calls) {
				call(id)
				at := map[int]bool{}
				records := backends.RecordsOf(id)
				for _, r := range records {
					at[r.Backend] = true
				}
				if len(records) > 1 { // in a busy process a primary can be canceled before it begins
					arrived++
				}
				if len(at) > 1 {
					elsewhere++
				}
			}
			row := s.Methods()[0]
			t.Logf("%d of %d calls met two backends; %d backends, %d connections, %d hedges over a used one",
				elsewhere, arrived, row.Ready, row.Connections, row.SameBackend-again)
			if elsewhere != arrived && strings.Contains(tc.child, roundRobin) || row.SameBackend != again {
				t.Errorf("%d of %d calls met two backends; %+v", elsewhere, arrived, row)
			}
			if arrived < calls/2 {
				t.Errorf("two attempts arrived for only %d of %d calls", arrived, calls)
			}

			// The cluster changes under calls. They overlap, because a channel over a ring hash
			// that no call uses is idle, and the hedge of a call to the old cluster waits until
			// another call has the new one connect.
			var group sync.WaitGroup
			for id := uint64(0); id < 120 || !moved.Load(); id++ {
				if id == 40 {
					m.say(t, clusterOf(t, "second", tc.child, tc.weighted), endpointsOf(t, "second", addresses[2:]))
				}
				group.Go(func() { call(changes + id) })
				<-time.After(10 * ms)
			}
			group.Wait()
			call(9999)
			for _, r := range backends.RecordsOf(9999) {
				if r.Backend < 2 {
					t.Errorf("the last call met backend %d, which the second cluster lacks", r.Backend)
				}
			}
		})
	}
}

const (
	roundRobin = `{"round_robin": {}}`
	outliers   = `{"outlier_detection_experimental": {"interval": "1s", "maxEjectionPercent": 50, "childPolicy": [%s],
		"failurePercentageEjection": {"threshold": 50, "enforcementPercentage": 100,
			"minimumHosts": 1, "requestVolume": 10}}}`
	ours = `{"hedge_other_backend": {"childPolicy": [%s]}}`
)

// share makes 333 calls a second for 20 s to 15 backends. It returns the share of primaries that the first
// backend has in the second half, and the calls that failed in percent.
func share(t *testing.T, policy string, script testserver.Script, opts ...hedge.Option) (share, failed float64) {
	var all, there atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, opts...)
		cluster := testserver.StartT(t, testserver.Config{Backends: 15, InMemory: true, CountsOnly: true})
		conn := cluster.ClientT(t, append(hedgetest.Interceptors(s),
			grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [%s]}`, policy)))...)
		testserver.ConnectT(t, conn)
		synctest.Wait()
		client, began := testpb.NewTestServiceClient(conn), time.Now()
		cluster.SetScript(func(a testserver.Attempt) testserver.Plan {
			if a.Number == 0 && time.Since(began) > 10*time.Second {
				if all.Add(1); a.Backend == 0 {
					there.Add(1)
				}
			}
			return script(a)
		})
		failed = (simulation.Client{Rate: 333, Lasts: 20 * time.Second, Seed: 1}).Through(t,
			func(ctx context.Context, id uint64) error {
				_, err := client.Unary(ctx, &testpb.Request{Id: id})
				return err
			}).Failed()
	})
	return float64(there.Load()) / float64(all.Load()), failed
}

// usual is the latency of a backend that is well.
var usual = testserver.LogNormal(5*ms, 2*ms)

// In TestOutlierDetection one of 15 backends is 40 ms farther than the others, and nothing fails.
// The losers of hedged calls end with an error, for which gRPC's outlier_detection ejects that
// backend, unless the policy is above it.
func TestOutlierDetection(t *testing.T) {
	longtest.Simulation(t)
	far := func(policy string, opts ...hedge.Option) float64 {
		there, failed := share(t, policy, func(a testserver.Attempt) testserver.Plan {
			p := testserver.Plan{Delay: a.Draw(usual)}
			if a.Backend == 0 {
				p.Delay += 40 * ms
			}
			return p
		}, opts...)
		if failed > 0 {
			t.Errorf("%s: %.1f%% of calls fail", policy, failed)
		}
		return there
	}
	plain := far(fmt.Sprintf(outliers, roundRobin), hedge.WithMaxHedges(0))
	without := far(fmt.Sprintf(outliers, roundRobin))
	below := far(fmt.Sprintf(outliers, fmt.Sprintf(ours, roundRobin)))
	above := far(fmt.Sprintf(ours, fmt.Sprintf(outliers, roundRobin)))
	t.Logf("the far backend has %.1f%% of the primaries plain; hedged, %.1f%% without the policy, %.1f%% with it "+
		"below, %.1f%% above", 100*plain, 100*without, 100*below, 100*above)
	if above < 0.9*plain || without > 0.03 || below > 0.03 {
		t.Error("want 6.7%, 1% and less, 6.7%")
	}
}
