package registry

import (
	"sync/atomic"

	"github.com/grpchedge/hedge/internal/rpc"
)

// Throttle limits the hedges of a target while many of its attempts fail, as gRPC defines it for
// retryThrottling. It counts tokens, from its maximum: a failure takes one, a success adds a ratio,
// and the count stays between 0 and the maximum. No hedge is sent unless more than half is left.
// As in gRPC, the unit is a thousandth of a token. A nil Throttle limits nothing. It is safe for
// concurrent use.
type Throttle struct {
	made       rpc.Throttle
	max, ratio int64
	tokens     atomic.Int64
}

const milli = 1000

// throttleFor returns the throttle for a configuration: old, if it has the same configuration, and
// nil without a configuration.
func throttleFor(c *rpc.Throttle, old *Throttle) *Throttle {
	switch {
	case c == nil:
		return nil
	case old != nil && old.made == *c:
		return old
	}
	t := &Throttle{made: *c, max: int64(c.Tokens) * milli, ratio: int64(c.MilliRatio)}
	t.tokens.Store(t.max)
	return t
}

// Throttles reports whether no hedge may be sent.
func (t *Throttle) Throttles() bool { return t != nil && 2*t.tokens.Load() <= t.max }

// Failed counts a failed attempt.
func (t *Throttle) Failed() { t.add(-milli) }

// Succeeded counts a successful call.
func (t *Throttle) Succeeded() { t.add(t.ratio) }

func (t *Throttle) add(d int64) {
	for {
		old := t.tokens.Load()
		count := min(max(old+d, 0), t.max)
		if count == old || t.tokens.CompareAndSwap(old, count) { // it is mostly full, and a success then writes nothing
			return
		}
	}
}

// Tokens returns the count and its maximum, in tokens; 0 without a throttle.
func (t *Throttle) Tokens() (tokens, most float64) {
	if t == nil {
		return 0, 0
	}
	return float64(t.tokens.Load()) / milli, float64(t.max) / milli
}
