package registry

import (
	"sync"
	"weak"

	"go.uber.org/atomic"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/grpchedge/hedge/internal/place"
)

// sameInARow is how many hedges of one ClientConn in a row have to go over one connection until it counts as its only one.
// If there were two, and each hedge took either by chance, that would happen once in 32,768 times.
const sameInARow = 16

// oneConnection watches, for a target, whether all hedges of a ClientConn go over one connection to one backend. gRPC does
// not say how many connections it has, but a hedge's peer says which one it went over.
type oneConnection struct {
	single atomic.Bool

	mu   sync.Mutex
	conn weak.Pointer[grpc.ClientConn] // the one that is watched; others are not, until it is gone
	last [2]string                     // the addresses of the connection that its last hedge went over
	same int                           // hedges in a row over that
}

// HedgePeer says to whom a hedge on a connection went, when it has ended. An unknown peer has no address. The record has the
// backends that the call has used.
func (t *Target) HedgePeer(conn *grpc.ClientConn, p *peer.Peer, record *place.Record) {
	if conn == nil || p.Addr == nil || p.LocalAddr == nil || record.PickedForHedge() { // the policy sends hedges where primaries do not go
		return
	}
	o, connection := &t.oneConnection, [2]string{p.LocalAddr.String(), p.Addr.String()}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch o.conn.Value() {
	case conn:
	case nil:
		o.conn, o.same = weak.Make(conn), 0
	default:
		return
	}
	if o.last != connection {
		o.last, o.same = connection, 0
	}
	o.same = min(o.same+1, sameInARow)
	o.single.Store(o.same == sameInARow)
}
