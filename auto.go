package hedge

import "github.com/grpchedge/hedge/internal/engine"

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
	t := Trigger{kind: engine.AutoTrigger, quantile: engine.DefaultTarget}
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
