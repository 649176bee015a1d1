package hedge

import (
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"
)

// pushbackTrailer is where a server says, with a failure, how long to wait before the next attempt.
const pushbackTrailer = "grpc-retry-pushback-ms"

// pushback reads what a server's trailer says: to wait, or for good when wait is negative. A value that is no
// int32, or several of them, mean the latter. False is a trailer that does not say.
func pushback(trailer metadata.MD) (wait time.Duration, ok bool) {
	values := trailer[pushbackTrailer] // gRPC gives keys in lower case
	if len(values) == 0 {
		return 0, false
	}
	ms, err := strconv.ParseInt(values[0], 10, 32)
	if err != nil || len(values) > 1 {
		ms = -1
	}
	return time.Duration(ms) * time.Millisecond, true
}

// Heeds reports whether failures of the call are of interest, with their trailers: for a throttle, or because a failure
// sends the next hedge.
func (c *Call) Heeds() bool { return c.heeds }

// Succeeded counts the call's success for the throttle, once. Whatever books the latency of an answer does so by itself; a
// binding does where the latency says nothing.
func (c *Call) Succeeded() {
	if !c.heeds || c.credited {
		return
	}
	if t := c.method.target.throttle; t != nil {
		c.credited = true
		t.success()
	}
}
