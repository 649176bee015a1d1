package guard

import (
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/rpc"
)

// Throttle limits the hedges of a target while many of its attempts fail, by gRPC's retryThrottling:
// a failure takes a token, a success adds tokenRatio tokens, and hedges need more than half of the
// tokens. A nil Throttle limits nothing. It is safe for concurrent use.
type Throttle struct {
	rpc.RetryThrottling
	tokens   atomic.Int64 // thousandths
	failedAt atomic.Int64 // the last failure, in nanoseconds after origin
}

// origin is the zero of atomic times, which a wall clock that is set back does not change.
var origin = time.Now()

// ThrottleFor returns the throttle for a configuration: old, if it has the same one; nil for none.
func ThrottleFor(c *rpc.RetryThrottling, old *Throttle) *Throttle {
	switch {
	case c == nil:
		return nil
	case old != nil && old.RetryThrottling == *c:
		return old
	}
	t := &Throttle{RetryThrottling: *c}
	t.tokens.Store(t.MilliTokens)
	return t
}

// Throttles reports whether no hedge may be sent at now, by a call of this target or from elsewhere.
// Hedges from elsewhere are sent again settle after the last failure: where no primary is sent,
// nothing else would ever succeed.
func (t *Throttle) Throttles(now time.Time, elsewhere bool) bool {
	return t != nil && 2*t.tokens.Load() <= t.MilliTokens &&
		!(elsewhere && int64(now.Sub(origin))-t.failedAt.Load() >= int64(settle))
}

func (t *Throttle) Failed() {
	t.failedAt.Store(int64(time.Since(origin)))
	t.add(-1000)
}

func (t *Throttle) Succeeded() { t.add(t.MilliRatio) }

func (t *Throttle) add(d int64) {
	for {
		old := t.tokens.Load()
		count := min(max(old+d, 0), t.MilliTokens)
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
	return float64(t.tokens.Load()) / 1000, float64(t.MilliTokens) / 1000
}
