package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"

	testpb "github.com/grpchedge/hedge/proto"
)

// A backend is one server of a cluster. Its address stays the same when it is
// started again.
type backend struct {
	cluster *Cluster
	index   int
	address string
	queue   queue

	mu       sync.Mutex
	server   *grpc.Server   // nil while the backend is down
	listener net.Listener   // the server's
	draining []*grpc.Server // former servers, which finish their calls
	done     bool           // the cluster is closed

	running sync.WaitGroup // servers that serve or drain
}

// start brings the backend up, in place of the server that it may have.
func (b *backend) start() error {
	b.stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return errors.New("testserver: the cluster is closed")
	}
	if b.server != nil {
		return fmt.Errorf("testserver: backend %d was started twice at once", b.index)
	}
	listener, err := b.listen()
	if err != nil {
		return fmt.Errorf("testserver: backend %d: %w", b.index, err)
	}
	svc := &service{backend: b}
	options := append([]grpc.ServerOption{
		grpc.WaitForHandlers(true),
		grpc.StreamInterceptor(svc.track),
	}, b.cluster.config.ServerOptions...)
	server := grpc.NewServer(options...)
	testpb.RegisterTestServiceServer(server, svc)
	b.server, b.listener = server, listener
	b.running.Go(func() {
		// Serve returns when the listener closes, which stop and drain see to.
		_ = server.Serve(serverListener{listener, b.cluster})
	})
	return nil
}

// listen opens the listener at the backend's address, which the first call
// chooses. The caller holds mu.
func (b *backend) listen() (net.Listener, error) {
	if b.cluster.config.InMemory {
		if b.address == "" {
			b.address = fmt.Sprintf("backend-%d", b.index)
		}
		return NewListener(), nil
	}
	if b.address != "" {
		return net.Listen("tcp", b.address)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.address = listener.Addr().String()
	return listener, nil
}

// stop closes the backend's connections, also while the server drains, and
// waits for its handlers.
func (b *backend) stop() {
	b.mu.Lock()
	servers := b.draining
	if b.server != nil {
		servers = append(servers, b.server)
	}
	b.server, b.draining = nil, nil
	b.mu.Unlock()
	for _, server := range servers {
		server.Stop()
	}
}

// drain sends GOAWAY to the backend's clients and lets calls in flight end. It
// does not wait for them, so that one of them may ask for it.
func (b *backend) drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server == nil || b.done {
		return
	}
	server := b.server
	b.server, b.draining = nil, append(b.draining, server)
	// GracefulStop would close the listener too, but later: the address must be
	// free when drain returns, for a new server to take.
	b.listener.Close()
	b.running.Go(server.GracefulStop)
}

// close stops the backend for good and returns when nothing of it is left.
func (b *backend) close() {
	b.mu.Lock()
	b.done = true
	b.mu.Unlock()
	b.stop()
	b.running.Wait()
}

func (b *backend) dial(ctx context.Context) (net.Conn, error) {
	if !b.cluster.config.InMemory {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", b.address)
	}
	b.mu.Lock()
	listener := b.listener.(*Listener)
	b.mu.Unlock()
	conn, err := listener.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("backend %d is down: %w", b.index, err)
	}
	return newMemoryConn(conn, b.address), nil
}
