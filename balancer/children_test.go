package balancer_test

import (
	"encoding/json"
	"hash/fnv"
	"slices"
	"strings"
	"sync/atomic"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/endpointsharding"
	"google.golang.org/grpc/balancer/lazy"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// Children for tests.
const (
	stubborn = `{"test_stubborn": {}}` // picks the same backend every time, as a hash of one key does
	hashing  = `{"test_hashing": {}}`  // picks by the call's header "key", and connects when it picks, as ring_hash does
	shards   = `{"test_shards": {}}`   // a round robin over the addresses in the call's header "shard"
	counting = `{"test_counting": {}}` // a round robin that counts its picks and updates
)

func init() {
	type states = []endpointsharding.ChildState
	for _, b := range []shardingBuilder{
		{"test_stubborn", false, func(ready states) grpcbalancer.Picker { return ready[0].State.Picker }},
		{"test_counting", false, func(ready states) grpcbalancer.Picker { return &countingPicker{ready: ready} }},
		{"test_shards", false, func(ready states) grpcbalancer.Picker { return &shardPicker{ready: ready} }},
		{"test_hashing", true, func(all states) grpcbalancer.Picker { return hashingPicker(all) }},
	} {
		grpcbalancer.Register(b)
	}
	grpcbalancer.Register(parentBuilder{})
}

// shardingBuilder builds policies over one pick_first for each endpoint, as gRPC's own are.
type shardingBuilder struct {
	name   string
	idle   bool // endpoints connect for a pick, and the picker gets all of them, as in ring_hash
	picker func([]endpointsharding.ChildState) grpcbalancer.Picker
}

func (b shardingBuilder) Name() string { return b.name }

func (b shardingBuilder) ParseConfig(json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	return nil, nil
}

func (b shardingBuilder) Build(cc grpcbalancer.ClientConn, opts grpcbalancer.BuildOptions) grpcbalancer.Balancer {
	s, build := &sharding{ClientConn: cc, shardingBuilder: b}, grpcbalancer.Get(pickfirst.Name).Build
	if b.idle {
		build = func(cc grpcbalancer.ClientConn, opts grpcbalancer.BuildOptions) grpcbalancer.Balancer {
			return lazy.NewBalancer(cc, opts, grpcbalancer.Get(pickfirst.Name).Build)
		}
	}
	s.Balancer = endpointsharding.NewBalancer(s, opts, build, endpointsharding.Options{DisableAutoReconnect: b.idle})
	return s
}

type sharding struct {
	grpcbalancer.ClientConn
	grpcbalancer.Balancer
	shardingBuilder
}

func (s *sharding) ExitIdle() {
	if !s.idle {
		s.Balancer.ExitIdle()
	}
}

func (s *sharding) UpdateClientConnState(state grpcbalancer.ClientConnState) error {
	state.ResolverState = pickfirst.EnableHealthListener(state.ResolverState)
	return s.Balancer.UpdateClientConnState(state)
}

func (s *sharding) UpdateState(state grpcbalancer.State) {
	if s.idle || state.ConnectivityState == connectivity.Ready {
		of := endpointsharding.ChildStatesFromPicker(state.Picker)
		of = slices.DeleteFunc(of, func(c endpointsharding.ChildState) bool {
			return !s.idle && c.State.ConnectivityState != connectivity.Ready
		})
		slices.SortFunc(of, func(a, b endpointsharding.ChildState) int {
			return strings.Compare(a.Endpoint.Addresses[0].Addr, b.Endpoint.Addresses[0].Addr)
		})
		state.Picker = s.picker(of)
	}
	s.ClientConn.UpdateState(state)
}

type hashingPicker []endpointsharding.ChildState

func (p hashingPicker) Pick(info grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) {
	md, _ := metadata.FromOutgoingContext(info.Ctx)
	h := fnv.New32()
	_, _ = h.Write([]byte(md.Get("key")[0]))
	return p[h.Sum32()%uint32(len(p))].State.Picker.Pick(info)
}

// counts has the counts of the counting children, and of shards. Tests that use them must not run in
// parallel.
var counts struct {
	picks, dones, unused atomic.Int64
	failed               atomic.Int64 // Dones with an error
	twice                atomic.Bool  // a Done was called twice
}

type counted struct{ picks, dones, unused, failed int64 }

func countsNow() counted {
	return counted{counts.picks.Load(), counts.dones.Load(), counts.unused.Load(), counts.failed.Load()}
}

func (c counted) minus(b counted) counted {
	return counted{c.picks - b.picks, c.dones - b.dones, c.unused - b.unused, c.failed - b.failed}
}

type countingPicker struct {
	ready []endpointsharding.ChildState
	next  atomic.Uint32
}

func (p *countingPicker) Pick(info grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) {
	// Each backend comes twice, so that a hedge's first pick meets the primary's.
	res, err := p.ready[int(p.next.Add(1)-1)/2%len(p.ready)].State.Picker.Pick(info)
	if err != nil {
		return res, err
	}
	counts.picks.Add(1)
	var called atomic.Bool
	res.Done = func(info grpcbalancer.DoneInfo) {
		if called.Swap(true) {
			counts.twice.Store(true)
		}
		counts.dones.Add(1)
		if info.Err != nil {
			counts.failed.Add(1)
		}
		if info.Err == nil && !info.BytesSent && !info.BytesReceived && info.Trailer == nil && info.ServerLoad == nil {
			counts.unused.Add(1)
		}
	}
	return res, nil
}

// shardPicker sends a call to a shard, and counts how often it is asked.
type shardPicker struct {
	ready []endpointsharding.ChildState
	next  atomic.Uint32
}

func (p *shardPicker) Pick(info grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) {
	counts.picks.Add(1)
	md, _ := metadata.FromOutgoingContext(info.Ctx)
	var of []grpcbalancer.Picker
	for _, r := range p.ready {
		if slices.Contains(md.Get("shard"), r.Endpoint.Addresses[0].Addr) {
			of = append(of, r.State.Picker)
		}
	}
	if len(of) == 0 {
		return grpcbalancer.PickResult{}, grpcbalancer.ErrNoSubConnAvailable
	}
	return of[p.next.Add(1)%uint32(len(of))].Pick(info)
}

// parentBuilder builds policies that give their child the first three endpoints, and connections of
// their own around gRPC's own, as outlier_detection does.
type parentBuilder struct{}

type parentConfig struct {
	serviceconfig.LoadBalancingConfig
	child  grpcbalancer.Builder
	config serviceconfig.LoadBalancingConfig
}

func (parentBuilder) Name() string { return "test_parent" }

func (parentBuilder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	var fields struct{ ChildPolicy []map[string]json.RawMessage }
	if err := json.Unmarshal(js, &fields); err != nil {
		return nil, err
	}
	c := &parentConfig{}
	for name, js := range fields.ChildPolicy[0] {
		c.child = grpcbalancer.Get(name)
		if parser, ok := c.child.(grpcbalancer.ConfigParser); ok {
			var err error
			if c.config, err = parser.ParseConfig(js); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

func (parentBuilder) Build(cc grpcbalancer.ClientConn, opts grpcbalancer.BuildOptions) grpcbalancer.Balancer {
	return &parent{ClientConn: cc, opts: opts}
}

type parent struct {
	grpcbalancer.ClientConn
	grpcbalancer.Balancer
	opts grpcbalancer.BuildOptions
}

type parentSubConn struct{ grpcbalancer.SubConn }

type parentPicker struct{ grpcbalancer.Picker }

func (p *parent) UpdateClientConnState(state grpcbalancer.ClientConnState) error {
	c := state.BalancerConfig.(*parentConfig)
	if p.Balancer == nil {
		p.Balancer = c.child.Build(p, p.opts)
	}
	state.BalancerConfig = c.config
	state.ResolverState.Endpoints = state.ResolverState.Endpoints[:min(3, len(state.ResolverState.Endpoints))]
	return p.Balancer.UpdateClientConnState(state)
}

func (p *parent) NewSubConn(addresses []resolver.Address, opts grpcbalancer.NewSubConnOptions) (
	grpcbalancer.SubConn, error) {
	//lint:ignore SA1019 one address is all that it has.
	sc, err := p.ClientConn.NewSubConn(addresses, opts)
	return &parentSubConn{sc}, err
}

func (p *parent) UpdateState(state grpcbalancer.State) {
	state.Picker = parentPicker{state.Picker}
	p.ClientConn.UpdateState(state)
}

func (p parentPicker) Pick(info grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) {
	res, err := p.Picker.Pick(info)
	if err == nil {
		res.SubConn = res.SubConn.(*parentSubConn).SubConn
	}
	return res, err
}
