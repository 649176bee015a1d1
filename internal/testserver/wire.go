package testserver

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// Wire watches the HTTP/2 frames of the connections that it dials: give its Dial to a client with
// [google.golang.org/grpc.WithContextDialer]. Its methods may be called concurrently.
type Wire struct {
	dial func(context.Context, string) (net.Conn, error)

	mu      sync.Mutex
	frames  []Frame
	conns   int
	readers sync.WaitGroup
}

// Frame is one HTTP/2 frame as the client's end of a connection saw it.
type Frame struct {
	At       time.Time
	Conn     int  // connections are numbered from 0 as they are dialled
	Sent     bool // by the client; otherwise received
	Stream   uint32
	Type     http2.FrameType
	Code     http2.ErrCode // of RST_STREAM
	Bytes    int           // of the payload
	EndsHere bool          // END_STREAM is set, on DATA or HEADERS
}

// NewWire returns a Wire over a dialler, such as [Cluster.Dial].
func NewWire(dial func(context.Context, string) (net.Conn, error)) *Wire {
	return &Wire{dial: dial}
}

// Dial dials and watches what passes on the connection until it is closed.
func (w *Wire) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := w.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	n := w.conns
	w.conns++
	w.mu.Unlock()
	return &watchedConn{Conn: conn, sent: w.watch(n, true), received: w.watch(n, false)}, nil
}

// Frames returns the frames of type t, sent by the client or received, in chronological
// order.
func (w *Wire) Frames(t http2.FrameType, sent bool) []Frame {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []Frame
	for _, f := range w.frames {
		if f.Type == t && f.Sent == sent {
			found = append(found, f)
		}
	}
	slices.SortStableFunc(found, func(a, b Frame) int { return a.At.Compare(b.At) })
	return found
}

// Wait returns when the connections are closed and all that passed on them has been seen.
func (w *Wire) Wait() { w.readers.Wait() }

// watch returns where to write the bytes of one direction of a connection.
func (w *Wire) watch(conn int, sent bool) *io.PipeWriter {
	r, pw := io.Pipe()
	w.readers.Go(func() {
		defer func() { _, _ = io.Copy(io.Discard, r) }() // whatever it cannot read, it does not hold up
		if sent {
			if _, err := io.CopyN(io.Discard, r, int64(len(http2.ClientPreface))); err != nil {
				return
			}
		}
		framer := http2.NewFramer(io.Discard, r)
		framer.SetMaxReadFrameSize(1<<24 - 1)
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				return
			}
			h := f.Header()
			seen := Frame{
				At: time.Now(), Conn: conn, Sent: sent, Stream: h.StreamID, Type: h.Type, Bytes: int(h.Length),
				EndsHere: (h.Type == http2.FrameData || h.Type == http2.FrameHeaders) && h.Flags.Has(http2.FlagDataEndStream),
			}
			if reset, ok := f.(*http2.RSTStreamFrame); ok {
				seen.Code = reset.ErrCode
			}
			w.mu.Lock()
			w.frames = append(w.frames, seen)
			w.mu.Unlock()
		}
	})
	return pw
}

type watchedConn struct {
	net.Conn
	sent, received *io.PipeWriter
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	_, _ = c.received.Write(p[:n])
	return n, err
}

func (c *watchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	_, _ = c.sent.Write(p[:n])
	return n, err
}

func (c *watchedConn) Close() error {
	_ = c.received.Close()
	_ = c.sent.Close()
	return c.Conn.Close()
}
