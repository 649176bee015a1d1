package learn

import "time"

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
