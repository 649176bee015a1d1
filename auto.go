package hedge

import "github.com/grpchedge/hedge/internal/engine"

// Auto chooses the delay, the probability and the number of hedges, for each method, so that the tail becomes as short as the
// budget allows. Where hedging does not shorten the tail, it hedges fewer than one call in a hundred. The tail is p99, unless
// [TargetPercentile] sets another percentile.
//
// A choice is made from the latencies of the method's primaries and hedges within [WithWindow], 30 times in that time: once a
// second by default. The formula
//
//	S(t) = S_X(t) · Π_k (1 − q·F_Y(t − k·d))
//
// predicts the share of calls that take longer than t, if hedge k is sent at the age k·d with the probability q. S_X is the
// share of primaries that take longer than a time, and F_Y the share of hedges that take less. The theory is in Kaler, He and
// Elnikety, "Optimal Reissue Policies for Reducing Tail Latency" (SPAA 2017).
//
// The probability is the greatest for which all hedges together cost 95% of the budget, and less while its bucket holds few
// tokens. The delay is the one with the least target percentile. Near-ties, within 3%, are decided by the percentile ten times
// as far out (p99.9 for p99), and then by the load.
//
// Hedging steps down to six hedges per 1,000 calls when hedges win far more seldom than predicted. That happens when requests
// are slow on every backend, when a backend is saturated, when there is only one, and in an outage. If the best choice would
// improve the target percentile by less than 5%, only calls slower than nearly all others are hedged. Hedging steps up again
// when the reason is gone. When latencies change suddenly, what was learned before is dropped. [TargetStats] has the choice
// in force, and the reason for a step down.
//
// The formula assumes that a hedge is independent of its primary, and needs 200 calls within [WithWindow]. Methods with fewer
// calls are hedged at their 90th percentile.
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
