package engine

import (
	"sync/atomic"

	"github.com/grpchedge/hedge/internal/serviceconfig"
)

// throttle is the token count of one target, as gRPC defines it for retryThrottling. It starts at its maximum, falls by one
// for a failure, rises by a ratio for a success, and stays between 0 and the maximum. Hedges are sent only while more than
// half is left. It counts in thousandths of a token, as gRPC does, and may be used concurrently. A nil throttle allows every
// hedge.
type throttle struct {
	most, ratio int64
	tokens      atomic.Int64
}

const milli = 1000

func newThrottle(c *serviceconfig.Throttle) *throttle {
	if c == nil {
		return nil
	}
	t := &throttle{most: int64(c.Tokens) * milli, ratio: int64(c.MilliRatio)}
	t.tokens.Store(t.most)
	return t
}

// throttleFor returns the target's throttle: the one that there is, if it was made from the same configuration. The engine's
// mu must be held.
func (t *target) throttleFor(c *serviceconfig.Throttle) *throttle {
	if (c == nil) != (t.throttling == nil) || c != nil && *c != *t.throttling {
		t.throttle, t.throttling = newThrottle(c), c
	}
	return t.throttle
}

func (t *throttle) failure() { t.add(-milli) }

func (t *throttle) success() { t.add(t.ratio) }

func (t *throttle) add(d int64) {
	for {
		old := t.tokens.Load()
		count := min(max(old+d, 0), t.most)
		if count == old || t.tokens.CompareAndSwap(old, count) { // it is mostly full, and a success then writes nothing
			return
		}
	}
}

// passes reports whether hedges may be sent.
func (t *throttle) passes() bool { return t == nil || 2*t.tokens.Load() > t.most }

// read returns the count and its maximum, in tokens.
func (t *throttle) read() (tokens, most float64) {
	if t == nil {
		return 0, 0
	}
	return float64(t.tokens.Load()) / milli, float64(t.most) / milli
}
