package hedge

import (
	"errors"
	"fmt"
	"time"

	"github.com/grpchedge/hedge/internal/engine"
)

// Trigger is how the delay after which calls are hedged is found. [Auto], [Percentile] and [Fixed] make one, for
// [WithTrigger].
type Trigger struct {
	kind     engine.TriggerKind
	quantile float64 // of Auto the target percentile
	delay    time.Duration
}

// Percentile hedges a call that has lasted longer than the quantile q of what the method's primaries took lately;
// 0 < q < 1.
//
// The share of calls that reach the trigger is about 1-q; one that is larger than the budget's share is hedged as far
// as the budget pays.
func Percentile(q float64) Trigger { return Trigger{kind: engine.PercentileTrigger, quantile: q} }

// Fixed hedges a call that has lasted d, whatever was learned and from the first call on; d may be below
// [WithMinDelay], and 0 sends all hedges at once. It must not be negative.
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
