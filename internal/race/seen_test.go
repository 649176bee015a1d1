package race_test

import (
	"net"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/grpchedge/hedge/internal/race"
)

// TestSeen_Nothing tells a status that a server has sent from one of gRPC's own.
func TestSeen_Nothing(t *testing.T) {
	at := &peer.Peer{Addr: &net.TCPAddr{Port: 1}}
	for _, tc := range []struct {
		seen race.Seen
		want bool
	}{
		{race.Seen{Peer: at}, true},
		{race.Seen{Peer: at, Trailer: metadata.MD{}}, true},
		{race.Seen{}, false},                     // it is not known
		{race.Seen{Peer: new(peer.Peer)}, false}, // there was no connection
		{race.Seen{Peer: at, Header: metadata.MD{}}, false},
		{race.Seen{Peer: at, Trailer: metadata.Pairs("content-type", "application/grpc")}, false},
	} {
		if got := tc.seen.Nothing(); got != tc.want {
			t.Errorf("%+v: %t", tc.seen, got)
		}
	}
}
