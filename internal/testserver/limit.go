package testserver

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// A Limit makes backends count a client's frames per connection and close a connection that sends
// too many, as servers and proxies do since the rapid-reset attacks. The zero Limit does nothing.
type Limit struct {
	// Resets is how many RST_STREAM frames a connection may send within any interval of Per; the
	// next one ends it. 0 sets no limit.
	Resets int

	// Per is the time that Resets is for; 0 is the whole life of the connection.
	Per time.Duration

	// Close is how a connection ends that sent too many resets.
	Close Closing

	// Debug is the debug data of the GOAWAY frame.
	Debug string
}

// Closing is how a [Limit] ends a connection.
type Closing int

const (
	// CloseAfterCalls sends GOAWAY with NO_ERROR and the last stream. The calls in flight are
	// served. Later ones are ignored, which a client of gRPC makes again elsewhere. It is the
	// client that closes the connection.
	CloseAfterCalls Closing = iota
	// CloseCalm sends GOAWAY with ENHANCE_YOUR_CALM and closes the connection.
	CloseCalm
	// CloseSilently closes the connection.
	CloseSilently
)

// LimitLikeApache resembles Apache httpd's limit, as far as a client can tell.
var LimitLikeApache = Limit{Resets: 25, Per: time.Second, Close: CloseSilently}

func (l *Limit) validate() error {
	switch {
	case l == nil:
		return nil
	case l.Resets < 0 || l.Per < 0:
		return fmt.Errorf("testserver: limit of %d resets in %v: numbers must be at least 0", l.Resets, l.Per)
	case l.Close < CloseAfterCalls || l.Close > CloseSilently:
		return fmt.Errorf("testserver: limit closes in manner %d: there is none", l.Close)
	case l.Close == CloseSilently && l.Debug != "":
		return errors.New("testserver: limit that closes silently has debug data")
	}
	return nil
}

// goAway returns the code of the GOAWAY frame that ends a connection, and whether there is one.
func (c Closing) goAway() (code http2.ErrCode, ok bool) {
	switch c {
	case CloseAfterCalls:
		return http2.ErrCodeNo, true
	case CloseCalm:
		return http2.ErrCodeEnhanceYourCalm, true
	}
	return 0, false
}

// resets has the times of a connection's last resets, as many as are allowed.
type resets struct {
	at   []time.Time // a ring
	next int
}

// over adds a reset and reports whether it is one more than the limit allows.
func (r *resets) over(l Limit, now time.Time) bool {
	if l.Resets == 0 {
		return false
	}
	if len(r.at) < l.Resets {
		r.at = append(r.at, now)
		return false
	}
	oldest := r.at[r.next]
	r.at[r.next] = now
	r.next = (r.next + 1) % l.Resets
	return l.Per == 0 || now.Sub(oldest) < l.Per
}

// ConnCounts are the counts of a [Limit] over all connections, since the start or the last
// [Cluster.Reset].
type ConnCounts struct {
	Connections int64 // that were accepted
	Requests    int64 // streams that clients opened and that were served
	Ignored     int64 // streams that clients opened after a GOAWAY
	Resets      int64 // RST_STREAM frames of clients
	GoAways     int64 // connections that ended gracefully, for too many resets or requests
	Cuts        int64 // connections that were cut, with a GOAWAY or without
}

// connCounters are the live form of ConnCounts.
type connCounters struct {
	connections, requests, ignored, resets, goAways, cuts atomic.Int64
}

// ConnCounts returns the counts of the [Config]'s Limit at all backends. It is zero without a
// Limit.
func (c *Cluster) ConnCounts() ConnCounts {
	n := &c.conn
	return ConnCounts{
		Connections: n.connections.Load(),
		Requests:    n.requests.Load(),
		Ignored:     n.ignored.Load(),
		Resets:      n.resets.Load(),
		GoAways:     n.goAways.Load(),
		Cuts:        n.cuts.Load(),
	}
}

func (n *connCounters) reset() {
	for _, n := range []*atomic.Int64{&n.connections, &n.requests, &n.ignored, &n.resets, &n.goAways, &n.cuts} {
		n.Store(0)
	}
}
