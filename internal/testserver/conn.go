package testserver

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"

	"google.golang.org/grpc/peer"
)

// memoryBuffer is the capacity of an in-memory connection in each direction. It is close to the
// buffer of a loopback socket and above gRPC's initial window.
const memoryBuffer = 128 << 10

// A serverListener accepts connections that a handler can find again: gRPC shows
// a handler no connection, but it does show the connection's remote address.
type serverListener struct {
	net.Listener
	cluster *Cluster
}

func (l serverListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	served := conn
	if limit := l.cluster.config.Limit; limit != nil {
		served = newLimitedConn(conn, *limit, &l.cluster.conn)
	}
	return serverConn{served, conn}, nil
}

// serverConn is the server's end of a connection.
type serverConn struct {
	net.Conn
	under net.Conn
}

func (c serverConn) RemoteAddr() net.Addr { return serverAddr{c.under.RemoteAddr(), c.under} }

type serverAddr struct {
	net.Addr
	conn net.Conn
}

// closeConn closes the connection that an attempt came by, on a socket with a
// reset, so that nothing written before is still delivered.
func closeConn(ctx context.Context) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return
	}
	addr, ok := p.Addr.(serverAddr)
	if !ok {
		return
	}
	if tcp, ok := addr.conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	addr.conn.Close()
}

// A memoryConn is the client's end of an in-memory connection. It tells
// backends apart by address, as a socket does.
type memoryConn struct {
	net.Conn
	address, local memoryAddr
}

func (c memoryConn) RemoteAddr() net.Addr { return c.address }

// LocalAddr is different for each connection, as a socket's is.
func (c memoryConn) LocalAddr() net.Addr { return c.local }

var memoryConns atomic.Int64

func newMemoryConn(conn net.Conn, address string) memoryConn {
	return memoryConn{conn, memoryAddr(address), memoryAddr(fmt.Sprintf("client %d", memoryConns.Add(1)))}
}

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }
