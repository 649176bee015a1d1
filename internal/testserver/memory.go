package testserver

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// Listener listens for connections in memory, which Dial makes. It and its connections have no
// timer, unlike gRPC's bufconn: a timer that is due at once now and then crashes the race detector
// of Go 1.26 itself, if connections are made again and again in bubbles of testing/synctest.
type Listener struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    func()
}

// NewListener returns a listener that is open.
func NewListener() *Listener {
	closed := make(chan struct{})
	return &Listener{make(chan net.Conn), closed, sync.OnceFunc(func() { close(closed) })}
}

var errListenerClosed = errors.New("the listener is closed")

// Accept waits for the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.closed:
		return nil, errListenerClosed
	}
}

// Close ends Accept and Dial. Connections stay.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr is the same for every listener.
func (l *Listener) Addr() net.Addr { return memoryAddr("memory") }

// Dial connects to the listener, as soon as that accepts.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	up, down := newPipe(), newPipe()
	select {
	case <-l.closed: // also if a concurrent Accept is ready
		return nil, errListenerClosed
	default:
	}
	select {
	case l.accepted <- &pipeConn{in: up, out: down}:
		return &pipeConn{in: down, out: up}, nil
	case <-l.closed:
		return nil, errListenerClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipeConn is one end of a connection. Deadlines have no effect: no test needs them.
type pipeConn struct{ in, out *pipe }

func (c *pipeConn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *pipeConn) Write(b []byte) (int, error) { return c.out.write(b) }

// Close lets the other end read the buffered data, and then io.EOF.
func (c *pipeConn) Close() error {
	c.out.end(io.EOF)
	c.in.end(io.ErrClosedPipe)
	return nil
}

func (c *pipeConn) LocalAddr() net.Addr              { return memoryAddr("memory") }
func (c *pipeConn) RemoteAddr() net.Addr             { return memoryAddr("memory") }
func (c *pipeConn) SetDeadline(time.Time) error      { return nil }
func (c *pipeConn) SetReadDeadline(time.Time) error  { return nil }
func (c *pipeConn) SetWriteDeadline(time.Time) error { return nil }

// pipe carries bytes in one direction, memoryBuffer of them at most.
type pipe struct {
	mu      sync.Mutex
	changed sync.Cond
	bytes   []byte
	ended   error // returned by Read after the last byte; Write fails at once
}

func newPipe() *pipe {
	p := &pipe{}
	p.changed.L = &p.mu
	return p
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.bytes) == 0 {
		if p.ended != nil {
			return 0, p.ended
		}
		p.changed.Wait()
	}
	n := copy(b, p.bytes)
	p.bytes = p.bytes[n:]
	p.changed.Broadcast()
	return n, nil
}

func (p *pipe) write(b []byte) (written int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.ended != nil {
			return written, io.ErrClosedPipe
		}
		n := min(len(b)-written, memoryBuffer-len(p.bytes))
		p.bytes = append(p.bytes, b[written:written+n]...)
		if written += n; n > 0 {
			p.changed.Broadcast()
		}
		if written == len(b) {
			return written, nil
		}
		p.changed.Wait()
	}
}

// end closes the pipe with err. If the reader closed it, with an error other than io.EOF, buffered
// data is dropped.
func (p *pipe) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil || err != io.EOF {
		p.ended = err
	}
	if err != io.EOF {
		p.bytes = nil
	}
	p.changed.Broadcast()
}

// Servers are the listeners of several servers of one target, by address.
type Servers map[string]*Listener

// DialOptions lets names of a scheme stand for these addresses, over round_robin.
func (s Servers) DialOptions(scheme string, addresses ...string) []grpc.DialOption {
	names, state := manual.NewBuilderWithScheme(scheme), resolver.State{}
	for _, address := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	names.InitialState(state)
	return []grpc.DialOption{grpc.WithResolvers(names),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return s[address].Dial(ctx)
		})}
}
