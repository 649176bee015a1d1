package testserver

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// limitedConn is the server's end of a connection that counts frames. It forwards incoming data
// frame by frame, so that it can drop frames, and inserts its own GOAWAY between two frames of the
// server.
type limitedConn struct {
	net.Conn
	limit  Limit
	counts *connCounters

	// For Read, which one goroutine at a time calls.
	in     *bufio.Reader
	head   []byte // bytes of the preface or of a frame's head, to pass on before what follows
	left   int    // bytes of the frame that are still to be passed on
	began  bool   // the preface was read
	resets resets
	last   uint32 // the highest stream that the client opened
	final  uint32 // the last stream that is served, once that is decided; 0 before

	mu      sync.Mutex // guards what follows, and that the writes of both ends of a frame are not parted
	out     frames
	closing *Closing // how the connection ends, as soon as no frame is half written; nil if it does not, or has
	goAway  []byte
	cut     bool
}

func newLimitedConn(conn net.Conn, limit Limit, counts *connCounters) net.Conn {
	counts.connections.Add(1)
	return &limitedConn{Conn: conn, limit: limit, counts: counts, in: bufio.NewReaderSize(conn, 32<<10)}
}

func (c *limitedConn) Read(p []byte) (int, error) {
	for len(c.head) == 0 && c.left == 0 {
		if err := c.next(); err != nil {
			return 0, c.readError(err)
		}
	}
	if len(c.head) > 0 {
		n := copy(p, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	n, err := c.in.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, c.readError(err)
}

// readError has a connection that was cut end for the server as if the client had closed it.
func (c *limitedConn) readError(err error) error {
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return io.EOF
	}
	return err
}

// next reads the head of the next frame, or the preface, and decides what becomes of it.
func (c *limitedConn) next() error {
	if !c.began {
		c.began = true
		c.head = make([]byte, len(http2.ClientPreface))
		_, err := io.ReadFull(c.in, c.head)
		return err
	}
	head := make([]byte, frameHead)
	if _, err := io.ReadFull(c.in, head); err != nil {
		return err
	}
	length := payloadLength(head)
	kind, stream := http2.FrameType(head[3]), binary.BigEndian.Uint32(head[5:])&(1<<31-1)
	if c.final > 0 && stream > c.final {
		if kind == http2.FrameHeaders {
			c.counts.ignored.Add(1)
		}
		_, err := c.in.Discard(length)
		return err
	}
	c.head, c.left = head, length
	switch kind {
	case http2.FrameHeaders:
		c.request(stream)
	case http2.FrameRSTStream:
		c.reset()
	}
	return nil
}

func (c *limitedConn) request(stream uint32) {
	if stream <= c.last {
		return
	}
	c.last = stream
	c.counts.requests.Add(1)
}

func (c *limitedConn) reset() {
	c.counts.resets.Add(1)
	if c.resets.over(c.limit, time.Now()) {
		c.end(c.limit.Close)
	}
}

// end closes the connection once: at once if no frame is half written, otherwise after that frame.
func (c *limitedConn) end(how Closing) {
	if c.final > 0 {
		return
	}
	c.final = c.last
	if how == CloseAfterCalls {
		c.counts.goAways.Add(1)
	} else {
		c.counts.cuts.Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = &how
	if code, ok := how.goAway(); ok {
		var frame bytes.Buffer
		// It fails only if the buffer does.
		_ = http2.NewFramer(&frame, nil).WriteGoAway(c.final, code, []byte(c.limit.Debug))
		c.goAway = frame.Bytes()
	}
	if c.out.between() {
		// If it fails, the connection is broken, as Read will find.
		_ = c.close()
	}
}

// close does what end decided. The caller holds mu.
func (c *limitedConn) close() error {
	_, err := c.Conn.Write(c.goAway)
	if *c.closing != CloseAfterCalls {
		c.cut = true
		// Closing a socket with unread data resets the connection. Shutting down the write side
		// first ends it in order.
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		_ = c.Conn.Close()
	}
	c.closing = nil
	return err
}

// Write forwards the server's data, and closes the connection at the end of a frame if a close is
// due.
func (c *limitedConn) Write(p []byte) (written int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing != nil {
		// The connection was to end in the middle of a frame: its rest comes first.
		rest := c.out.next(p)
		if written, err = c.Conn.Write(p[:rest]); err != nil {
			return written, err
		}
		if c.out.between() {
			if err := c.close(); err != nil {
				return written, err
			}
		}
		p = p[rest:]
	}
	for rest := p; len(rest) > 0; {
		rest = rest[c.out.next(rest):]
	}
	n, err := c.Conn.Write(p)
	return written + n, err
}
