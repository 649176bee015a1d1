package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// Config configures a cluster. The zero Config is one backend on a loopback socket that answers
// every attempt at once.
type Config struct {
	// Name is the last part of the cluster's target; default "cluster". Clusters
	// that share a scheduler need different ones.
	Name string

	// Backends is the number of backends; default 1.
	Backends int

	// InMemory connects through memory instead of loopback sockets, which a
	// testing/synctest bubble needs.
	InMemory bool

	// Latency is the distribution of an attempt's latency without a Script; nil answers at once.
	Latency Distribution

	// Script, if not nil, decides what happens to each attempt.
	Script Script

	// Seed starts the randomness of all draws: the same seed gives the same
	// draws, in the order in which attempts ask for them.
	Seed uint64

	// DrawByID makes the draws of an attempt follow from the seed, the request's
	// id and the attempt's number alone, so that two runs over the same ids
	// compare like with like. Requests of the same id then take the same time.
	DrawByID bool

	// Workers, if above 0, is the number of attempts that a backend serves at a time. Others wait
	// in the order of arrival. An attempt occupies a worker for the Delay of its plan, to its end
	// even if it is cancelled before, unless StopsCancelled is set.
	Workers int

	// StopsCancelled frees the worker of an attempt as soon as it is cancelled.
	StopsCancelled bool

	// Wait, if not nil, replaces the timer that delays attempts. It returns after d, or with the
	// context's error once ctx has ended.
	Wait func(ctx context.Context, d time.Duration) error

	// Limit, if not nil, counts the frames of each client connection and closes connections that
	// exceed it.
	Limit *Limit

	// CountsOnly keeps counts, but no records.
	CountsOnly bool

	// ServerOptions are passed to every server.
	ServerOptions []grpc.ServerOption
}

// A Cluster is a set of backends behind one target. Its methods may be called
// concurrently.
type Cluster struct {
	config   Config
	backends []*backend
	source   *source
	script   atomic.Pointer[Script]
	records  records
	idle     idle
	counters counters
	conn     connCounters

	mu     sync.Mutex
	conns  []*grpc.ClientConn
	closed bool
}

// Start starts a cluster. The caller must call [Cluster.Close].
func Start(config Config) (*Cluster, error) {
	if config.Backends < 0 {
		return nil, fmt.Errorf("testserver: backends must be at least 0, got %d", config.Backends)
	}
	if config.Workers < 0 {
		return nil, fmt.Errorf("testserver: workers must be at least 0, got %d", config.Workers)
	}
	if err := config.Limit.validate(); err != nil {
		return nil, err
	}
	if config.Backends == 0 {
		config.Backends = 1
	}
	if config.Wait == nil {
		config.Wait = wait
	}
	if config.Name == "" {
		config.Name = "cluster"
	}
	c := &Cluster{config: config, source: newSource(config.Seed)}
	c.SetScript(config.Script)
	for i := range config.Backends {
		b := &backend{cluster: c, index: i}
		b.queue.start(config.Workers, config.StopsCancelled)
		c.backends = append(c.backends, b)
		if err := b.start(); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// SetScript changes what happens to attempts that arrive from now on; nil
// returns to the latency of the [Config].
func (c *Cluster) SetScript(script Script) {
	if script == nil {
		c.script.Store(nil)
		return
	}
	c.script.Store(&script)
}

// Target returns the target that the connections of [Cluster.Client] have.
func (c *Cluster) Target() string { return "testserver:///" + c.config.Name }

// Address returns the address of a backend, as the client's [google.golang.org/grpc/peer.Peer]
// shows it.
func (c *Cluster) Address(backend int) string { return c.backends[backend].address }

// Backends returns the number of backends.
func (c *Cluster) Backends() int { return len(c.backends) }

// Dial connects to the backend with the given address. It is how the connections
// of [Cluster.Client] dial: a test that watches the wire wraps it in a
// grpc.WithContextDialer of its own.
func (c *Cluster) Dial(ctx context.Context, address string) (net.Conn, error) {
	for _, b := range c.backends {
		if b.address == address {
			return b.dial(ctx)
		}
	}
	return nil, fmt.Errorf("testserver: no backend has the address %q", address)
}

// Client returns a connection to all backends, used in turn (round_robin). The
// options come after the cluster's own, and so prevail. The cluster closes the
// connection, unless the caller did.
func (c *Cluster) Client(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	var state resolver.State
	for _, b := range c.backends {
		address := resolver.Address{Addr: b.address}
		state.Addresses = append(state.Addresses, address)
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{address}})
	}
	builder := manual.NewBuilderWithScheme("testserver")
	builder.InitialState(state)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.New("testserver: the cluster is closed")
	}
	conn, err := grpc.NewClient(c.Target(), append([]grpc.DialOption{
		grpc.WithResolvers(builder),
		grpc.WithContextDialer(c.Dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("testserver: %w", err)
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

// Stop closes a backend's connections and takes it down: its attempts end, and
// no new ones arrive. It waits for its handlers, so a [Script] must not call it.
func (c *Cluster) Stop(backend int) { c.backends[backend].stop() }

// Drain sends GOAWAY on a backend's connections and takes it down as soon as the
// attempts there have ended, for which it does not wait.
func (c *Cluster) Drain(backend int) { c.backends[backend].drain() }

// GracefulStop drains all backends, and returns when their attempts have ended.
func (c *Cluster) GracefulStop() {
	for _, b := range c.backends {
		b.drain()
	}
	for _, b := range c.backends {
		b.running.Wait()
	}
}

// Restart brings a backend up, at the address it had, after it was stopped or
// drained. One that is up is stopped first.
func (c *Cluster) Restart(backend int) error { return c.backends[backend].start() }

// Close closes the connections that [Cluster.Client] made, then the backends, and
// returns when no handler or server of theirs is left. It may be called again.
func (c *Cluster) Close() {
	c.mu.Lock()
	conns := c.conns
	c.conns, c.closed = nil, true
	c.mu.Unlock()
	for _, conn := range conns {
		// The only error is that the caller closed it first.
		_ = conn.Close()
	}
	for _, b := range c.backends {
		b.close()
	}
}

// TB is the part of [testing.TB] that this package needs, which it names here so
// that programs with no tests in them can import it.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// StartT is [Start] for a test: it closes the cluster when the test is over.
func StartT(tb TB, config Config) *Cluster {
	tb.Helper()
	c, err := Start(config)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(c.Close)
	return c
}

// ClientT is [Cluster.Client] for a test.
func (c *Cluster) ClientT(tb TB, options ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	conn, err := c.Client(options...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return conn
}
