package run

import (
	"cmp"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
)

// inTurn is the service config of a fleet's clients. Theirs is a round robin too, but gRPC's begins
// at a server chosen at random, so that runs with many clients would differ.
const (
	inTurn     = `{"loadBalancingConfig": [{"bench_in_turn": {}}]}`
	inTurnName = "bench_in_turn"
)

func init() {
	balancer.Register(inTurnBuilder{base.NewBalancerBuilder(inTurnName, turns{}, base.Config{})})
}

// inTurnBuilder builds a base balancer, which knows addresses, for a resolver that knows endpoints.
type inTurnBuilder struct{ balancer.Builder }

func (b inTurnBuilder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return inTurnBalancer{b.Builder.Build(cc, opts)}
}

type inTurnBalancer struct{ balancer.Balancer }

func (b inTurnBalancer) UpdateClientConnState(s balancer.ClientConnState) error {
	s.ResolverState.Addresses = nil
	for _, e := range s.ResolverState.Endpoints {
		s.ResolverState.Addresses = append(s.ResolverState.Addresses, e.Addresses...)
	}
	return b.Balancer.UpdateClientConnState(s)
}

// turnKey is the key of a client's turn in the context of a call.
type turnKey struct{}

type turns struct{}

func (turns) Build(info base.PickerBuildInfo) balancer.Picker {
	if len(info.ReadySCs) == 0 {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	p := turnPicker{}
	for c := range info.ReadySCs {
		p = append(p, c)
	}
	slices.SortFunc(p, func(a, b balancer.SubConn) int {
		return cmp.Compare(info.ReadySCs[a].Address.Addr, info.ReadySCs[b].Address.Addr)
	})
	return p
}

type turnPicker []balancer.SubConn

func (p turnPicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	n := info.Ctx.Value(turnKey{}).(*atomic.Uint32).Add(1)
	return balancer.PickResult{SubConn: p[int(n)%len(p)]}, nil
}
