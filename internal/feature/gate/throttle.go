package gate

import (
	"sync/atomic"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/stats"
)

// Throttle holds the hedges of a target back while many of its attempts fail, as gRPC defines it for retryThrottling. It is a
// count of tokens. It starts at its maximum, falls by one for a failure, rises by a ratio for a success, and stays between 0 and the
// maximum. Hedges are sent only while more than half is left. It counts in thousandths of a token, as gRPC does, and may be used
// concurrently. It is the gate and the observer of the target's methods.
type Throttle struct {
	made       rpc.Throttle
	max, ratio int64
	tokens     atomic.Int64
}

const milli = 1000

// ThrottleFor returns the throttle for a configuration: the old one, if it was made from the same; nil without a configuration.
func ThrottleFor(c *rpc.Throttle, old *Throttle) *Throttle {
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

func (t *Throttle) Admit(*feature.Due) feature.Verdict {
	return feature.Never(stats.Throttled).If(2*t.tokens.Load() <= t.max)
}

// Failed counts an attempt that has failed. A final status is no failure, unless its server wants no further attempt.
func (t *Throttle) Failed(end race.EndKind, p race.Pushback) {
	if end == race.NonFatal || p == race.PushbackNever {
		t.add(-milli)
	}
}

func (t *Throttle) Ended(_ *feature.CallState, e *feature.End) {
	if e.Err == nil && (e.Race == nil || !e.Race.Panicked) {
		t.add(t.ratio)
	}
}

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
