package hedge

import (
	"errors"
	"fmt"
	"time"
)

// Trigger is how the delay after which calls are hedged is found. [Auto], [Percentile] and [Fixed] make one, for
// [WithTrigger].
type Trigger struct {
	kind     triggerKind
	quantile float64
	delay    time.Duration
}

type triggerKind uint8

const (
	percentileTrigger triggerKind = iota
	fixedTrigger
	autoTrigger
)

// Percentile hedges a call that has lasted longer than the quantile q of what the method's primaries took lately;
// 0 < q < 1.
//
// The share of calls that reach the trigger is about 1-q; one that is larger than the budget's share is hedged as far
// as the budget pays.
func Percentile(q float64) Trigger { return Trigger{kind: percentileTrigger, quantile: q} }

// Fixed hedges a call that has lasted d, whatever was learned and from the first call on; d may be below
// [WithMinDelay], and 0 sends all hedges at once. It must not be negative.
func Fixed(d time.Duration) Trigger { return Trigger{kind: fixedTrigger, delay: d} }

func (t Trigger) validate() error {
	switch {
	case t.kind == percentileTrigger && !(t.quantile > 0 && t.quantile < 1):
		return errors.New("the quantile must lie between 0 and 1, both excluded")
	case t.kind == fixedTrigger && t.delay < 0:
		return errors.New("the delay must not be negative")
	}
	return nil
}

func (t Trigger) String() string {
	switch t.kind {
	case fixedTrigger:
		return fmt.Sprintf("Fixed(%v)", t.delay)
	case autoTrigger:
		return "Auto()"
	}
	return fmt.Sprintf("Percentile(%v)", t.quantile)
}

// WithTrigger sets how the delay after which calls are hedged is found: see [Auto], [Percentile] and [Fixed]. The
// default is Auto().
func WithTrigger(t Trigger) Option {
	return func(c *config) error {
		if err := t.validate(); err != nil {
			return fmt.Errorf("hedge: WithTrigger(%v): %w", t, err)
		}
		c.trigger = t
		return nil
	}
}
