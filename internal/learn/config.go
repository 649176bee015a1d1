package learn

import (
	"time"

	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/sketch"
)

// Config is what a scheduler's options say about learning. It is not written any more once learners use it.
type Config struct {
	Quantile      float64 // of primaries, after which calls are hedged where nothing is chosen
	Auto          bool    // delay, probability and number of hedges are chosen
	Target        float64 // the percentile that a choice makes small, as a quantile
	MaxHedges     int     // of one call
	BudgetPercent float64 // hedges per 100 calls
	MinDelay      time.Duration
	WarmupCalls   int // before the first estimate
	Window        time.Duration
	Pace          *Pace // shared by all learners of a scheduler; nil: no limit
}

func (c *Config) problem(d *sketch.Distribution, primary, hedge *sketch.Survival, load float64) knee.Problem {
	return knee.Problem{
		Primary: primary, Hedge: hedge, Calls: float64(d.Total()),
		Target: c.Target, Load: load, Hedges: c.MaxHedges, MinDelay: c.MinDelay,
	}
}

// planned is the load that a budget in percent is planned with, for a bucket of the given capacity in hedges. With all of the
// budget the bucket runs dry by chance, and a call that finds it so is slower for it: the smaller the bucket the more often.
func planned(budgetPercent, capacity float64) float64 {
	return budgetPercent / 100 * min(capacity/(capacity+1), 0.95)
}

// gain is the share of the unhedged tail that a plan saves, of the target percentile or, where that is a lot, of the one ten
// times as far out.
func (c *Config) gain(primary *sketch.Survival, plan knee.Plan) float64 {
	gain := 1 - float64(plan.Tail)/float64(knee.Tail(primary, c.Target))
	if far := 1 - float64(plan.FarTail)/float64(knee.FarTail(primary, c.Target)); far >= worthwhileFar {
		gain = max(gain, far)
	}
	return gain
}

// leastGain is the plan in place of one that gains little. Only what is slower than nearly all calls that were seen is hedged:
// hardly any call now, and each one when a backend stalls.
func (c *Config) leastGain(primary *sketch.Survival, plan knee.Plan) knee.Plan {
	return knee.Plan{Delay: max(knee.Tail(primary, 1-tricklePercent/100), plan.Delay), Probability: 1, Hedges: c.MaxHedges}
}
