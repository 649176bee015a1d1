package balancer_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// dealer is a client of addresses in front of a cluster, each of which may stand for all backends,
// as a Kubernetes service's does: connections are then dealt to the backends in turn. The test may
// change the addresses and the policy, and loses packets.
type dealer struct {
	cluster *testserver.Cluster
	conn    *grpc.ClientConn
	client  testpb.TestServiceClient
	names   *manual.Resolver

	mu    sync.Mutex
	wires []*wire
}

// wire is a connection that can drop packets.
type wire struct {
	net.Conn
	sending, coming atomic.Bool // lost writes; lost reads
	written         atomic.Int64
	closed          chan struct{}
	once            sync.Once
}

func dial(t *testing.T, cluster *testserver.Cluster, addresses int, deals bool, options ...grpc.DialOption) *dealer {
	t.Helper()
	d := &dealer{cluster: cluster, names: manual.NewBuilderWithScheme("dealt")}
	d.names.InitialState(d.addresses(addresses, 0))
	var dialed atomic.Int64
	conn, err := grpc.NewClient("dealt:///", append(options, grpc.WithResolvers(d.names),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if deals {
				address = cluster.Address(int(dialed.Add(1)-1) % cluster.Backends())
			}
			conn, err := cluster.Dial(ctx, address) // outside the lock: in a bubble, waiting for a lock stops time
			if err != nil {
				return nil, err
			}
			w := &wire{Conn: conn, closed: make(chan struct{})}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.wires = append(d.wires, w)
			return w, nil
		}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	d.conn, d.client = conn, testpb.NewTestServiceClient(conn)
	return d
}

func (d *dealer) connect(t *testing.T) {
	t.Helper()
	testserver.ConnectT(t, d.conn)
	synctest.Wait()
}

// addresses returns n of the cluster's addresses, from the given one on, as in a circle.
func (d *dealer) addresses(n, from int) (state resolver.State) {
	for i := range n {
		a := resolver.Address{Addr: d.cluster.Address((from + i) % d.cluster.Backends())}
		state.Addresses = append(state.Addresses, a)
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{a}})
	}
	return state
}

func (d *dealer) reconfigure(addresses, from int, policy string) {
	state := d.addresses(addresses, from)
	state.ServiceConfig = d.names.CC().ParseServiceConfig(serviceConfig(policy))
	d.names.UpdateState(state)
}

// open returns the number of open connections.
func (d *dealer) open() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.wires {
		select {
		case <-w.closed:
		default:
			n++
		}
	}
	return n
}

func (w *wire) Write(b []byte) (int, error) {
	w.written.Add(int64(len(b)))
	if w.sending.Load() {
		return len(b), nil
	}
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	for {
		n, err := w.Conn.Read(b)
		if !w.coming.Load() {
			return n, err
		}
		if err != nil { // nor does anything come of its end
			<-w.closed
			return 0, net.ErrClosed
		}
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}
