package balancer_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/grpchedge/hedge/balancer"
)

// fakeChild is a child that records the calls to it. The test controls it.
type fakeChild struct {
	name string
	cc   grpcbalancer.ClientConn

	before *fakeChild // that was built before it

	mu   sync.Mutex
	told []string
}

// note records a call to the child.
func (c *fakeChild) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, what)
}

// heard returns the calls to the child since the last heard.
func (c *fakeChild) heard() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := strings.Join(c.told, " ")
	c.told = nil
	return told
}

var errFake = errors.New("what the child returned")

func (c *fakeChild) UpdateClientConnState(state grpcbalancer.ClientConnState) error {
	address := state.ResolverState.Endpoints[0].Addresses[0].Addr
	c.note("update " + state.BalancerConfig.(fakeConfig).Mark + " " + address)
	return errFake
}
func (c *fakeChild) ResolverError(err error) { c.note("error " + err.Error()) }
func (c *fakeChild) UpdateSubConnState(_ grpcbalancer.SubConn, state grpcbalancer.SubConnState) {
	c.note("state " + state.ConnectivityState.String())
}
func (c *fakeChild) Close()    { c.note("close") }
func (c *fakeChild) ExitIdle() { c.note("exit") }

func (c *fakeChild) say(state connectivity.State, p grpcbalancer.Picker) {
	c.cc.UpdateState(grpcbalancer.State{ConnectivityState: state, Picker: p})
}

type fakeConfig struct {
	serviceconfig.LoadBalancingConfig
	Mark string
}

// fakes has the last child of each fake builder, by the builder's name.
var fakes = map[string]*fakeChild{}

type fakeBuilder struct{ name string }

func init() {
	grpcbalancer.Register(fakeBuilder{"test_fake_a"})
	grpcbalancer.Register(fakeBuilder{"test_fake_b"})
}

func (b fakeBuilder) Name() string { return b.name }
func (b fakeBuilder) Build(cc grpcbalancer.ClientConn, _ grpcbalancer.BuildOptions) grpcbalancer.Balancer {
	fakes[b.name] = &fakeChild{name: b.name, cc: cc, before: fakes[b.name]}
	return fakes[b.name]
}
func (b fakeBuilder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	var c fakeConfig
	if err := json.Unmarshal(js, &c); err != nil {
		return nil, err
	}
	if c.Mark == "bad" {
		return nil, errors.New("mark: bad")
	}
	return c, nil
}

// fakeConn is the parent. It records the calls of the policy.
type fakeConn struct {
	grpcbalancer.ClientConn
	states   []connectivity.State
	picker   grpcbalancer.Picker
	resolves int
	made     []*fakeSubConn
}

type fakeSubConn struct {
	grpcbalancer.SubConn
	listener func(grpcbalancer.SubConnState)
	health   func(grpcbalancer.SubConnState)
	told     []string
}

func (c *fakeConn) Target() string { return "fake:///target" }
func (c *fakeConn) UpdateState(s grpcbalancer.State) {
	c.states, c.picker = append(c.states, s.ConnectivityState), s.Picker
}
func (c *fakeConn) ResolveNow(resolver.ResolveNowOptions) { c.resolves++ }
func (c *fakeConn) NewSubConn(_ []resolver.Address, opts grpcbalancer.NewSubConnOptions) (grpcbalancer.SubConn, error) {
	s := &fakeSubConn{listener: opts.StateListener}
	c.made = append(c.made, s)
	return s, nil
}
func (s *fakeSubConn) Connect()                           { s.told = append(s.told, "connect") }
func (s *fakeSubConn) Shutdown()                          { s.told = append(s.told, "shutdown") }
func (s *fakeSubConn) UpdateAddresses([]resolver.Address) { s.told = append(s.told, "addresses") }
func (s *fakeSubConn) RegisterHealthListener(l func(grpcbalancer.SubConnState)) {
	s.health = l
}

// funcPicker picks by a function.
type funcPicker func() (grpcbalancer.PickResult, error)

func (p funcPicker) Pick(grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) { return p() }

// picksOne picks one connection.
func picksOne(sc grpcbalancer.SubConn) funcPicker {
	return func() (grpcbalancer.PickResult, error) { return grpcbalancer.PickResult{SubConn: sc}, nil }
}

// inTurn picks connections in turn. *open counts the picks that are not done.
func inTurn(open *int, of ...grpcbalancer.SubConn) funcPicker {
	next := -1
	return func() (grpcbalancer.PickResult, error) {
		next++
		*open++
		return grpcbalancer.PickResult{SubConn: of[next%len(of)], Done: func(grpcbalancer.DoneInfo) { *open-- }}, nil
	}
}

// buildReady returns the parent and the child fakeA of a policy, with n connections of the child that
// are ready.
func buildReady(t *testing.T, n int) (*fakeConn, *fakeChild, []grpcbalancer.SubConn) {
	t.Helper()
	conn, b, configure := build(t)
	t.Cleanup(b.Close)
	_ = configure(fakeA)
	child := fakes["test_fake_a"]
	var made []grpcbalancer.SubConn
	for i := range n {
		made = append(made, newSubConn(t, child, string(rune('a'+i)), nil))
		conn.made[i].listener(state(connectivity.Ready))
	}
	return conn, child, made
}

// pick picks with a context.
func (c *fakeConn) pick(ctx context.Context) (grpcbalancer.PickResult, error) {
	return c.picker.Pick(grpcbalancer.PickInfo{Ctx: ctx})
}

// build returns a policy with a fake parent, and the function to configure it.
func build(t *testing.T) (*fakeConn, grpcbalancer.Balancer, func(config string) error) {
	t.Helper()
	conn := &fakeConn{}
	builder := grpcbalancer.Get(balancer.Name)
	b := builder.Build(conn, grpcbalancer.BuildOptions{})
	return conn, b, func(config string) error {
		c, err := builder.(grpcbalancer.ConfigParser).ParseConfig(json.RawMessage(config))
		if err != nil {
			t.Fatal(err)
		}
		return b.UpdateClientConnState(grpcbalancer.ClientConnState{BalancerConfig: c, ResolverState: resolver.State{
			Endpoints: []resolver.Endpoint{{Addresses: []resolver.Address{{Addr: "one"}}}}}})
	}
}

// Children for tests.
const (
	stubborn = `{"test_stubborn": {}}` // picks the same backend every time, as a hash of one key does
	shard    = `{"test_shard": {}}`    // picks the first two backends in turn
	firstOn  = `{"test_first_on": {}}` // picks all in turn, from the first on; round_robin begins at one chosen at random
	counting = `{"test_counting": {}}` // picks all in turn, each twice, so that a hedge's first pick meets the primary's
)

func init() {
	for name, p := range map[string]turns{"test_stubborn": {most: 1, each: 1}, "test_shard": {most: 2, each: 1},
		"test_first_on": {most: 100, each: 1}, "test_counting": {most: 100, each: 2}} {
		grpcbalancer.Register(base.NewBalancerBuilder(name, p, base.Config{}))
	}
}

// counts has the counts of these children. Tests that use it must not run in parallel.
var counts struct {
	picks, dones, unused atomic.Int64
	failed               atomic.Int64 // Dones with an error
	twice                atomic.Bool  // a Done was called twice
}

// turns builds pickers of the first backends, by address, in turn.
type turns struct{ most, each int }

func (p turns) Build(info base.PickerBuildInfo) grpcbalancer.Picker {
	ready := slices.SortedFunc(maps.Keys(info.ReadySCs), func(a, b grpcbalancer.SubConn) int {
		return strings.Compare(info.ReadySCs[a].Address.Addr, info.ReadySCs[b].Address.Addr)
	})
	if len(ready) == 0 {
		return base.NewErrPicker(grpcbalancer.ErrNoSubConnAvailable)
	}
	ready = ready[:min(p.most, len(ready))]
	var next atomic.Int64
	return funcPicker(func() (grpcbalancer.PickResult, error) {
		counts.picks.Add(1)
		var called atomic.Bool
		n := int(next.Add(1)-1) / p.each % len(ready)
		return grpcbalancer.PickResult{SubConn: ready[n],
			Done: func(info grpcbalancer.DoneInfo) {
				if called.Swap(true) {
					counts.twice.Store(true)
				}
				counts.dones.Add(1)
				if info.Err != nil {
					counts.failed.Add(1)
				}
				if info.Err == nil && !info.BytesSent && !info.BytesReceived && info.Trailer == nil &&
					info.ServerLoad == nil {
					counts.unused.Add(1)
				}
			}}, nil
	})
}
