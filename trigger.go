package hedge

import (
	"errors"
	"fmt"
	"time"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/settings"
)

// WithTrigger sets the trigger, which chooses when calls are hedged: [Auto], [Percentile] or
// [Fixed]. The default is Auto().
func WithTrigger(t Trigger) Option {
	return option("WithTrigger", anywhere, t.validate(), func(c *settings.Config) {
		c.Auto, c.Fixed, c.Quantile, c.Latest, c.Delay = t.auto, t.fixed, settings.Fallback, race.Longest, t.delay
		switch {
		case t.auto:
			c.Latest = min(t.delay, race.Longest)
		case !t.fixed:
			c.Quantile = t.quantile
		}
	}, t)
}

// Trigger determines the delay after which calls are hedged. Make one with [Auto], [Percentile] or
// [Fixed]. The zero Trigger is invalid.
type Trigger struct {
	auto, fixed bool
	quantile    float64       // of Percentile
	delay       time.Duration // of Fixed, and the latest of Auto
}

// Auto chooses the delay, the probability and the number of hedges of each method within the
// budget. It makes the slower half of calls faster by the greatest factor, from the median to p99.9
// on a logarithmic scale. A hedge must gain more than its price, which all methods of a target share.
//
// Auto makes a choice about once per second, at the default [WithWindow], and less often with
// thousands of methods. The first choice comes about six calls after the warm-up; until then a
// method is hedged at its 90th percentile. [stats.Method] reports the choice after 200 calls.
// docs/trigger.md derives it, after Kaler, He and Elnikety, "Optimal Reissue Policies" (SPAA 2017).
func Auto(opts ...AutoOption) Trigger {
	t := Trigger{auto: true, delay: race.Longest}
	for _, opt := range opts {
		if opt != nil {
			opt(&t)
		}
	}
	return t
}

// AutoOption is an option of [Auto]. [New] returns an error for a value out of range.
type AutoOption func(*Trigger)

// NoLaterThan makes hedge n of a call due at the age n*d at the latest, up to [WithMaxHedges], as for
// a promised time to the first token. d must be positive; there is no default. It bounds the delay of
// the warm-up and [WithMinDelay] too. The budget pays for these hedges, and whatever holds back a
// hedge at any other delay holds them back.
func NoLaterThan(d time.Duration) AutoOption { return func(t *Trigger) { t.delay = d } }

// Percentile hedges a call once its age exceeds the quantile q, 0 < q < 1, of the latencies of the
// method's primaries within [WithWindow]. Hedges are due for about a share 1-q of the calls. If the
// budget pays for fewer, hedges are sent for a random sample of these calls.
func Percentile(q float64) Trigger { return Trigger{quantile: q} }

// Fixed hedges a call at age d, starting with the first call of a method. d must not be negative,
// and may be below [WithMinDelay]. With 0 all hedges are sent at once.
func Fixed(d time.Duration) Trigger { return Trigger{fixed: true, delay: d} }

func (t Trigger) validate() error {
	switch {
	case t.auto:
		return refuse(t.delay <= 0, "NoLaterThan(%v): must be positive", t.delay)
	case t.fixed:
		return refuse(t.delay < 0, "WithTrigger(%v): delay must not be negative", t)
	}
	return refuse(!(t.quantile > 0 && t.quantile < 1), "WithTrigger(%v): quantile must be between 0 and 1, exclusive", t)
}

func (t Trigger) String() string {
	switch {
	case t.fixed:
		return fmt.Sprintf("Fixed(%v)", t.delay)
	case !t.auto:
		return fmt.Sprintf("Percentile(%v)", t.quantile)
	case t.delay != race.Longest:
		return fmt.Sprintf("Auto(NoLaterThan(%v))", t.delay)
	}
	return "Auto()"
}

// WithMinDelay sets the minimum of every learned delay: 0 or more; the default is 1 ms. Without a
// minimum, scheduling noise would cause hedges of methods with latencies of microseconds.
func WithMinDelay(d time.Duration) Option {
	err := refuse(d < 0, "WithMinDelay(%v): must not be negative", d)
	return option("WithMinDelay", anywhere, err, func(c *settings.Config) { c.MinDelay = min(d, race.Longest) }, d)
}

// WithWarmup sets how many calls of a method are observed before its learned delay is used, and the
// delay until then. With a delay of 0 these calls are not hedged. Neither may be negative; the
// defaults are 20 and 0.
func WithWarmup(calls int, delay time.Duration) Option {
	err := errors.Join(
		refuse(calls < 0, "WithWarmup(%d, %v): calls must not be negative", calls, delay),
		refuse(delay < 0, "WithWarmup(%d, %v): delay must not be negative", calls, delay))
	return option("WithWarmup", anywhere, err, func(c *settings.Config) { c.WarmupCalls, c.WarmupDelay = calls, delay },
		calls, delay)
}
