package hedge

import (
	"errors"
	"fmt"
	"time"

	"github.com/grpchedge/hedge/internal/engine"
)

// Trigger is how the delay is found after which calls are hedged. Make one with [Auto], [Percentile] or [Fixed], and pass it
// to [WithTrigger]. The zero Trigger is invalid.
type Trigger struct {
	kind     engine.TriggerKind
	quantile float64 // of Auto the target percentile
	delay    time.Duration
}

// Percentile hedges a call that has lasted longer than the quantile q, 0 < q < 1, of the latencies of the method's primaries
// within [WithWindow].
//
// A hedge is due for about a share 1-q of the calls. If that is more than the budget pays for, only some of these hedges are
// sent.
func Percentile(q float64) Trigger { return Trigger{kind: engine.PercentileTrigger, quantile: q} }

// Fixed hedges a call that has lasted d, from the first call of a method on. d may be below [WithMinDelay]. With 0 all hedges
// are sent at once. d must not be negative.
func Fixed(d time.Duration) Trigger { return Trigger{kind: engine.FixedTrigger, delay: d} }

func (t Trigger) validate() error {
	switch {
	case t.kind == engine.PercentileTrigger && !(t.quantile > 0 && t.quantile < 1):
		return errors.New("the quantile must lie between 0 and 1, both excluded")
	case t.kind == engine.AutoTrigger && !(t.quantile >= 0.5 && t.quantile <= 0.999):
		return errors.New("the quantile must be 0.5 to 0.999")
	case t.kind == engine.FixedTrigger && t.delay < 0:
		return errors.New("the delay must not be negative")
	}
	return nil
}

func (t Trigger) String() string {
	switch t.kind {
	case engine.FixedTrigger:
		return fmt.Sprintf("Fixed(%v)", t.delay)
	case engine.AutoTrigger:
		if t.quantile == engine.DefaultTarget {
			return "Auto()"
		}
		return fmt.Sprintf("Auto(TargetPercentile(%v))", t.quantile)
	}
	return fmt.Sprintf("Percentile(%v)", t.quantile)
}
