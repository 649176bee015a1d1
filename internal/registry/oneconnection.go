package registry

import (
	"maps"
	"sync"
	"weak"

	"go.uber.org/atomic"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/grpchedge/hedge/internal/place"
)

const (
	// sameInARow is the number of consecutive hedges, each over the same connection as the previous
	// hedge of its ClientConn, after which each ClientConn counts as having one connection. With
	// two connections chosen at random, that happens once in 32,768 times.
	sameInARow = 15
	// maxWatched bounds the watched ClientConns of a target: a pool may have hundreds.
	maxWatched = 64
)

// oneConnection detects, for a target, that all hedges of each ClientConn use one connection to one
// backend. gRPC does not expose the number of connections of a ClientConn, but the peer of a hedge
// identifies its connection.
type oneConnection struct {
	single atomic.Bool

	mu   sync.Mutex
	last map[weak.Pointer[grpc.ClientConn]][2]string // the addresses of the connection that its last hedge went over
	same int                                         // hedges in a row over the connection of the one before
}

func (t *Target) OneConnection() bool { return t.oneConnection.single.Load() }

// HedgePeer records the peer p of a hedge on conn that has ended. An unknown peer has no address.
// record has the backends that the call has used.
func (t *Target) HedgePeer(conn *grpc.ClientConn, p *peer.Peer, record *place.Record) {
	// the policy sends hedges where primaries do not go
	if conn == nil || p.Addr == nil || p.LocalAddr == nil || record.PickedForHedge() {
		return
	}
	o, key, connection := &t.oneConnection, weak.Make(conn), [2]string{p.LocalAddr.String(), p.Addr.String()}
	o.mu.Lock()
	defer o.mu.Unlock()
	before, watched := o.last[key]
	switch {
	case !watched:
		maps.DeleteFunc(o.last, func(c weak.Pointer[grpc.ClientConn], _ [2]string) bool {
			return len(o.last) >= maxWatched && c.Value() == nil
		})
		if len(o.last) >= maxWatched {
			return
		}
	case before != connection:
		o.same = 0
	default:
		o.same = min(o.same+1, sameInARow)
	}
	if o.last == nil {
		o.last = map[weak.Pointer[grpc.ClientConn]][2]string{}
	}
	o.last[key] = connection
	o.single.Store(o.same == sameInARow)
}
