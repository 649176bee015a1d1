package wire

import (
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"
)

// PushbackTrailer is the trailer key by which a server says, with a failure, how many milliseconds to wait before the next
// attempt. A negative value means that no attempt should follow.
const PushbackTrailer = "grpc-retry-pushback-ms"

// Pushback reads the pushback in a trailer. If wait is negative, no further attempt should be sent. A value that is not an int32,
// or several values, mean the same. ok is false if the trailer has no pushback.
func Pushback(trailer metadata.MD) (wait time.Duration, ok bool) {
	values := trailer[PushbackTrailer] // gRPC gives keys in lower case
	if len(values) == 0 {
		return 0, false
	}
	ms, err := strconv.ParseInt(values[0], 10, 32)
	if err != nil || len(values) > 1 {
		ms = -1
	}
	return time.Duration(ms) * time.Millisecond, true
}

// NoMore returns the trailer by which a server asks for no further attempt.
func NoMore() metadata.MD { return metadata.Pairs(PushbackTrailer, "-1") }
