package hedge

import (
	"errors"
	"fmt"
	"time"

	"github.com/grpchedge/hedge/internal/settings"
)

// WithTrigger sets when calls are hedged: see [Auto], [Percentile] and [Fixed]. The default is Auto().
func WithTrigger(t Trigger) Option {
	return option("WithTrigger", t.validate(), func(c *settings.Config) { c.Trigger = t.in })
}

// Trigger says after what delay calls are hedged. Make one with [Auto], [Percentile] or [Fixed], and pass it to
// [WithTrigger]. The zero Trigger is invalid.
type Trigger struct{ in settings.Trigger }

// Auto chooses the delay, the probability and the number of hedges of each method, within the budget. It makes small the time that
// calls take beyond their median, weighted towards the tail: the slowest calls count for more than their share. A hedge must save
// more than it costs. Where few do, few calls are hedged.
//
// About once a second, at the default [WithWindow], Auto makes a choice for each method, from the recent latencies of its
// primaries and hedges and from what hedged calls took. Where hedges save less than predicted, less is expected of them for some
// minutes. When latencies change at once, Auto forgets what it learned before. [stats.Method] says what is in force and why.
// docs/trigger.md derives all of this, after Kaler, He and Elnikety, "Optimal Reissue Policies for Reducing Tail Latency" (SPAA
// 2017), and says where it is wrong.
//
// A choice needs 100 calls. Until then a method is hedged at its 90th percentile. All choices of a scheduler together take about 1%
// of a core at most: with thousands of methods, each method gets a new choice less often.
func Auto(opts ...AutoOption) Trigger {
	t := Trigger{settings.Trigger{Kind: settings.AutoTrigger, Quantile: settings.DefaultTarget}}
	for _, opt := range opts {
		if opt != nil {
			opt(&t)
		}
	}
	return t
}

// AutoOption is an option of [Auto]. If its value is out of range, [New] returns an error.
type AutoOption func(*Trigger)

// TargetPercentile sets the percentile that figures of [Auto] are about, as a quantile: 0.5 ≤ q ≤ 0.999. The default is 0.99. They
// are the tails in [stats.Choice], [stats.Forecast] and [stats.Control]. It changes nothing about when calls are hedged.
func TargetPercentile(q float64) AutoOption { return func(t *Trigger) { t.in.Quantile = q } }

// Percentile hedges a call that has lasted longer than the quantile q, 0 < q < 1, of the latencies of the method's
// primaries within [WithWindow]. A hedge is then due for about a share 1-q of the calls. If the budget pays for fewer,
// only some of these hedges are sent.
func Percentile(q float64) Trigger {
	return Trigger{settings.Trigger{Kind: settings.PercentileTrigger, Quantile: q}}
}

// Fixed hedges a call that has lasted d, from the first call of a method on. d may be below [WithMinDelay]. With 0 all
// hedges are sent at once. d must not be negative.
func Fixed(d time.Duration) Trigger {
	return Trigger{settings.Trigger{Kind: settings.FixedTrigger, Delay: d}}
}

func (t Trigger) validate() error {
	switch q := t.in.Quantile; t.in.Kind {
	case settings.PercentileTrigger:
		return refuse(!(q > 0 && q < 1), "WithTrigger(%v): the quantile must lie between 0 and 1, both excluded", t)
	case settings.AutoTrigger:
		return refuse(!(q >= 0.5 && q <= 0.999), "WithTrigger(%v): the quantile must be 0.5 to 0.999", t)
	default:
		return refuse(t.in.Delay < 0, "WithTrigger(%v): the delay must not be negative", t)
	}
}

func (t Trigger) String() string {
	switch {
	case t.in.Kind == settings.FixedTrigger:
		return fmt.Sprintf("Fixed(%v)", t.in.Delay)
	case t.in.Kind == settings.PercentileTrigger:
		return fmt.Sprintf("Percentile(%v)", t.in.Quantile)
	case t.in.Quantile == settings.DefaultTarget:
		return "Auto()"
	}
	return fmt.Sprintf("Auto(TargetPercentile(%v))", t.in.Quantile)
}

// WithMinDelay sets the least value of every learned delay: 0 or more; the default is 1 ms. Without it, scheduling noise
// would cause hedges of methods that answer in microseconds.
func WithMinDelay(d time.Duration) Option {
	err := refuse(d < 0, "WithMinDelay(%v): the delay must not be negative", d)
	return option("WithMinDelay", err, func(c *settings.Config) { c.MinDelay = d })
}

// WithWarmup sets how many calls of a method are watched before its learned delay is used, and the delay until then.
// With a delay of 0 no hedge is sent until then. Neither may be negative; the defaults are 20 and 0.
func WithWarmup(calls int, delay time.Duration) Option {
	err := errors.Join(refuse(calls < 0, "WithWarmup(%d, %v): the number of calls must not be negative", calls, delay),
		refuse(delay < 0, "WithWarmup(%d, %v): the delay must not be negative", calls, delay))
	return option("WithWarmup", err, func(c *settings.Config) { c.WarmupCalls, c.WarmupDelay = calls, delay })
}
