package testserver

import (
	"context"
	"net"
	"sync/atomic"

	"golang.org/x/net/http2"
)

// Meter counts what passes on the connections that it dials, at less cost than a [Wire]: give its
// Dial to a client with [google.golang.org/grpc.WithContextDialer]. Its methods may be called
// concurrently.
type Meter struct {
	dial func(context.Context, string) (net.Conn, error)

	connections, requests, resets, goAways atomic.Int64
}

// MeterCounts are the counts of a [Meter] since it was created.
type MeterCounts struct {
	Connections int64
	Requests    int64 // streams that the client opened
	Resets      int64 // RST_STREAM frames that the client sent
	GoAways     int64 // GOAWAY frames that the client received
}

// NewMeter returns a Meter over a dialler, such as [Cluster.Dial].
func NewMeter(dial func(context.Context, string) (net.Conn, error)) *Meter {
	return &Meter{dial: dial}
}

// Counts returns the current counts.
func (m *Meter) Counts() MeterCounts {
	return MeterCounts{m.connections.Load(), m.requests.Load(), m.resets.Load(), m.goAways.Load()}
}

// Dial dials and counts what passes on the connection.
func (m *Meter) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := m.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	m.connections.Add(1)
	return &meteredConn{Conn: conn, meter: m, preface: len(http2.ClientPreface)}, nil
}

// meteredConn is the client's end of a connection. One goroutine at a time reads, and one writes.
type meteredConn struct {
	net.Conn
	meter   *Meter
	preface int // bytes of it that are still to be sent
	out, in frames
}

func (c *meteredConn) Write(p []byte) (int, error) {
	skip := min(c.preface, len(p))
	c.preface -= skip
	for rest := p[skip:]; len(rest) > 0; {
		rest = rest[c.out.next(rest):]
		if c.out.between() {
			switch http2.FrameType(c.out.head[3]) {
			case http2.FrameHeaders:
				c.meter.requests.Add(1)
			case http2.FrameRSTStream:
				c.meter.resets.Add(1)
			}
		}
	}
	return c.Conn.Write(p)
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		rest = rest[c.in.next(rest):]
		if c.in.between() && http2.FrameType(c.in.head[3]) == http2.FrameGoAway {
			c.meter.goAways.Add(1)
		}
	}
	return n, err
}
