package wire

import (
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"
)

// PushbackTrailer is where a server says, with a failure, how many milliseconds to wait before the next attempt.
const PushbackTrailer = "grpc-retry-pushback-ms"

// Pushback reads what a server's trailer says: to wait, or, when wait is negative, to send no further attempt. A value that
// is no int32, or several of them, mean the latter. If the trailer does not say, ok is false.
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
