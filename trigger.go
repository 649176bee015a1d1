package hedge

import (
	"errors"
	"fmt"
	"time"

	"github.com/grpchedge/hedge/internal/settings"
)

// WithTrigger sets how the delay is found after which calls are hedged: see [Auto], [Percentile] and [Fixed]. The default is
// Auto().
func WithTrigger(t Trigger) Option {
	return named("WithTrigger", func(c *settings.Config) error {
		if err := t.validate(); err != nil {
			return fmt.Errorf("hedge: WithTrigger(%v): %w", t, err)
		}
		c.Trigger = settings.Trigger{Kind: t.kind, Quantile: t.quantile, Delay: t.delay}
		return nil
	})
}

// Trigger is how the delay is found after which calls are hedged. Make one with [Auto], [Percentile] or [Fixed], and pass it
// to [WithTrigger]. The zero Trigger is invalid.
type Trigger struct {
	kind     settings.TriggerKind
	quantile float64 // of Auto the target percentile
	delay    time.Duration
}

// Auto chooses the delay, the probability and the number of hedges, for each method, so that the tail becomes as short as the
// budget allows. Where hedging does not shorten the tail, it hedges fewer than one call in a hundred. The tail is p99, unless
// [TargetPercentile] sets another percentile.
//
// About once a second, at the default [WithWindow], a choice is made for each method, from what its primaries and its hedges took
// lately. For hedges that are independent of their primaries,
//
//	S(t) = S_X(t) · Π_k (1 − q·F_Y(t − k·d))
//
// predicts the latencies of calls whose hedge k is sent at the age k·d with the probability q: S_X is the share of primaries
// that take longer than t, F_Y that of hedges that take less. This goes back to Kaler, He and Elnikety, "Optimal Reissue
// Policies for Reducing Tail Latency" (SPAA 2017). Requests differ, so hedges are seldom independent. Therefore it is recorded
// what hedged calls still took after their first hedge, by the age at which it was sent. Where that differs from the prediction
// by more than chance, it takes the prediction's place. It fades over two minutes.
//
// The probability is the greatest for which all hedges together cost 95% of the budget, less where its bucket holds few tokens.
// The delay is the one with the least target percentile; among those within 3% of it, the one with the least percentile ten
// times as far out (p99.9 for p99), and then the one with the least load.
//
// Hedging steps down to six hedges per 1,000 calls when hedges win much more seldom than predicted and the hedged calls seen
// show no gain: requests that are slow on every backend, a saturated backend, a single one, an outage. When the best choice
// promises to improve the target percentile by less than 5%, only what is slower than nearly all calls that were seen is
// hedged. It steps up when either turns. When latencies change at once, what was learned before is forgotten.
// [stats.Method] says what is in force and why. docs/trigger.md derives all of this and says where it is wrong.
//
// A choice needs a few hundred calls. Methods that have fewer are hedged at their 90th percentile, and from 100 calls on as is
// best for a percentile nearer than the target.
// All choices of a scheduler together take about 1% of a core at most: with thousands of methods each is chosen for less often.
func Auto(opts ...AutoOption) Trigger {
	t := Trigger{kind: settings.AutoTrigger, quantile: settings.DefaultTarget}
	for _, opt := range opts {
		if opt != nil {
			opt(&t)
		}
	}
	return t
}

// AutoOption is an option of [Auto]. If its value is out of range, [New] returns an error.
type AutoOption func(*Trigger)

// TargetPercentile sets the percentile of call latencies that [Auto] minimises, as a quantile: 0.5 ≤ q ≤ 0.999. The default
// is 0.99.
func TargetPercentile(q float64) AutoOption { return func(t *Trigger) { t.quantile = q } }

// Percentile hedges a call that has lasted longer than the quantile q, 0 < q < 1, of the latencies of the method's primaries
// within [WithWindow].
//
// A hedge is due for about a share 1-q of the calls. If that is more than the budget pays for, only some of these hedges are
// sent.
func Percentile(q float64) Trigger { return Trigger{kind: settings.PercentileTrigger, quantile: q} }

// Fixed hedges a call that has lasted d, from the first call of a method on. d may be below [WithMinDelay]. With 0 all hedges
// are sent at once. d must not be negative.
func Fixed(d time.Duration) Trigger { return Trigger{kind: settings.FixedTrigger, delay: d} }

func (t Trigger) validate() error {
	switch {
	case t.kind == settings.PercentileTrigger && !(t.quantile > 0 && t.quantile < 1):
		return errors.New("the quantile must lie between 0 and 1, both excluded")
	case t.kind == settings.AutoTrigger && !(t.quantile >= 0.5 && t.quantile <= 0.999):
		return errors.New("the quantile must be 0.5 to 0.999")
	case t.kind == settings.FixedTrigger && t.delay < 0:
		return errors.New("the delay must not be negative")
	}
	return nil
}

func (t Trigger) String() string {
	switch t.kind {
	case settings.FixedTrigger:
		return fmt.Sprintf("Fixed(%v)", t.delay)
	case settings.AutoTrigger:
		if t.quantile == settings.DefaultTarget {
			return "Auto()"
		}
		return fmt.Sprintf("Auto(TargetPercentile(%v))", t.quantile)
	}
	return fmt.Sprintf("Percentile(%v)", t.quantile)
}

// WithMinDelay sets the least value of every learned delay: 0 or more; the default is 1 ms. Without it, scheduling noise
// would cause hedges of methods that answer in microseconds.
func WithMinDelay(d time.Duration) Option {
	err := refuse(d < 0, "WithMinDelay(%v): the delay must not be negative", d)
	return option("WithMinDelay", err, func(c *settings.Config) { c.MinDelay = d })
}

// WithWarmup sets how many calls of a method must be seen before its learned delay is used, and the delay that is used until
// then. With a delay of 0 no hedge is sent until then. Neither may be negative; the defaults are 20 and 0.
func WithWarmup(calls int, delay time.Duration) Option {
	err := errors.Join(refuse(calls < 0, "WithWarmup(%d, %v): the number of calls must not be negative", calls, delay),
		refuse(delay < 0, "WithWarmup(%d, %v): the delay must not be negative", calls, delay))
	return option("WithWarmup", err, func(c *settings.Config) { c.WarmupCalls, c.WarmupDelay = calls, delay })
}
