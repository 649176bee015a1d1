package resets

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/race"
)

// Cut is what an attempt has seen of the end of its connection.
type Cut uint8

const (
	// None: its connection did not end under it, or that is not known.
	None Cut = iota
	// NoReason: the connection ended, and the server did not say that there were too many resets.
	NoReason
	// EnhanceYourCalm: the server said ENHANCE_YOUR_CALM before it ended the connection.
	EnhanceYourCalm
)

// CutOf returns what an attempt that failed with err has seen. A status that a server has sent comes with a header, or, alone,
// with a trailer that has a content-type. That of a cut is gRPC's own and comes with neither, for an attempt with a connection.
func CutOf(err error, seen race.Seen) Cut {
	if seen.Peer == nil || seen.Peer.Addr == nil || seen.Header != nil || len(seen.Trailer) > 0 || !ConnectionEnded(err) {
		return None
	}
	// Only what comes before the debug data, which are the server's, is gRPC's own.
	_, goAway, _ := strings.Cut(status.Convert(err).Message(), ", received prior goaway: ")
	code, data, _ := strings.Cut(goAway, ", debug data: ")
	if code == "code: ENHANCE_YOUR_CALM" && data != `"too_many_pings"` {
		return EnhanceYourCalm
	}
	return NoReason
}

// ConnectionEnded reports whether err has the text of grpc-go for a connection that ended while an attempt was in flight. A
// server that relays such an error sends the same words.
func ConnectionEnded(err error) bool {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return false
	}
	text := strings.TrimPrefix(s.Message(), "closing transport due to: ")
	return strings.HasPrefix(strings.TrimPrefix(text, `connection error: desc = "`), "error reading from server: ")
}
