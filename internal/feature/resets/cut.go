package resets

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Cut is how the connection of an attempt ended.
type Cut uint8

const (
	// None: it did not end while the attempt was in flight, or that is not known.
	None Cut = iota
	// NoReason: the connection ended, and the server did not say that there were too many resets.
	NoReason
	// EnhanceYourCalm: the server said so before it ended the connection.
	EnhanceYourCalm
)

// CutOf returns how the connection of an attempt ended that failed with err, if it did. The words alone do not prove that: a
// server that relays such an error sends the same.
func CutOf(err error) Cut {
	if !ConnectionEnded(err) {
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

// ConnectionEnded reports whether err has the text of grpc-go for a connection that ended while an attempt was in flight.
func ConnectionEnded(err error) bool {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return false
	}
	text := strings.TrimPrefix(s.Message(), "closing transport due to: ")
	return strings.HasPrefix(strings.TrimPrefix(text, `connection error: desc = "`), "error reading from server: ")
}
