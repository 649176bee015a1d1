package call_test

import (
	"time"

	"github.com/grpchedge/hedge/internal/call"
)

const (
	ms     = time.Millisecond
	target = "dns:///test"
	method = "/pkg.Svc/Get"
)

// hedgesKnown is how many hedges of a call's method are known of.
func hedgesKnown(c *call.Call) int64 {
	return c.Learner().Hedges(time.Now()).Total()
}
