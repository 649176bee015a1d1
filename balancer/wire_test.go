package balancer_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver/manual"

	"github.com/grpchedge/hedge/internal/testserver"
)

// dealer stands for one address in front of a cluster, such as a Kubernetes service's. It connects
// to the backends in turn.
type dealer struct {
	cluster *testserver.Cluster

	mu    sync.Mutex
	wires []*wire
}

// wire is a connection that can drop packets.
type wire struct {
	net.Conn
	backend         int
	sending, coming atomic.Bool // lost writes
	closed          chan struct{}
	once            sync.Once
}

// dialer is the dial option for connections through the dealer. If deals is false, they keep their
// address.
func (d *dealer) dialer(deals bool) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		w := &wire{closed: make(chan struct{})}
		if deals {
			w.backend = len(d.wires) % d.cluster.Backends()
			address = d.cluster.Address(w.backend)
		}
		var err error
		if w.Conn, err = d.cluster.Dial(ctx, address); err != nil {
			return nil, err
		}
		d.wires = append(d.wires, w)
		return w, nil
	})
}

// open returns the open connections.
func (d *dealer) open() (open []*wire) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.wires {
		select {
		case <-w.closed:
		default:
			open = append(open, w)
		}
	}
	return open
}

func (w *wire) Write(b []byte) (int, error) {
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

// dialDealt returns a connection to some addresses of a cluster through a dealer. The test may
// change the addresses and the configuration.
func dialDealt(t *testing.T, cluster *testserver.Cluster, addressCount int, deals bool,
	options ...grpc.DialOption) (*grpc.ClientConn, *dealer, *manual.Resolver) {
	t.Helper()
	conn, d, names := dialIdle(t, cluster, addressCount, deals, options...)
	testserver.ConnectT(t, conn)
	return conn, d, names
}

// dialIdle is dialDealt for a child that connects for a pick.
func dialIdle(t *testing.T, cluster *testserver.Cluster, addressCount int, deals bool,
	options ...grpc.DialOption) (*grpc.ClientConn, *dealer, *manual.Resolver) {
	t.Helper()
	d := &dealer{cluster: cluster}
	names := manual.NewBuilderWithScheme("dealt")
	names.InitialState(addresses(cluster, addressCount, 0))
	conn, err := grpc.NewClient("dealt:///", append(options, d.dialer(deals),
		grpc.WithResolvers(names), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, d, names
}
