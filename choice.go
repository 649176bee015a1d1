package hedge

import (
	"fmt"
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/knee"
)

// Choice is what the trigger [Auto] has chosen for a method, and what it expects of that. The tail is the percentile that
// [WithTargetPercentile] names, p99 by default.
type Choice struct {
	// Delay is the age at which a call gets its first hedge, and the time from each hedge to the next. Probability is that
	// with which a hedge that is due is sent, 0 to 1; MaxHedges the most hedges of one call. They are what is in force;
	// what is predicted is of what would be if hedging had not stepped down.
	Delay       time.Duration
	Probability float64
	MaxHedges   int
	// UnhedgedTail is the tail that calls would have without hedging, PredictedTail the one that they are to have with it,
	// and MeasuredTail the one that those in the window had.
	UnhedgedTail, PredictedTail, MeasuredTail time.Duration
	// PredictedLoad is the number of hedges per call, to be compared with Stats.HedgeRate.
	PredictedLoad float64
	// PredictedWins is the share of hedged calls that a hedge would answer if hedges were as fast as primaries, and
	// MeasuredWins the one of the last RecentlyHedged hedged calls, a hundred at most; 0 if there were none.
	PredictedWins, MeasuredWins float64
	RecentlyHedged              int
	// SteppedDown says in a sentence why hardly any call is hedged; empty if hedging pays.
	SteppedDown string
}

func (e *estimate) public() Choice {
	c := e.choice
	if c == nil {
		return Choice{}
	}
	return Choice{
		Delay:         e.delay,
		Probability:   e.probability,
		MaxHedges:     e.hedges,
		UnhedgedTail:  c.unhedged,
		PredictedTail: c.plan.Tail,
		MeasuredTail:  c.measured,
		PredictedLoad: c.plan.Load,
		PredictedWins: c.plan.WinShare,
		MeasuredWins:  c.wins,

		RecentlyHedged: c.hedged,
		SteppedDown:    c.why(),
	}
}

// why says why hedging has stepped down; empty if it has not.
func (c *choice) why() string {
	switch c.down {
	case littleToGain:
		return fmt.Sprintf("hedging would make the tail %v instead of %v: too little to pay for", round(c.plan.Tail), round(c.unhedged))
	case hedgesLose:
		if c.hedged == 0 {
			return "hedges were no faster than waiting before latencies changed, and none has been sent since"
		}
		return fmt.Sprintf("hedges answered %.0f%% of hedged calls where %.0f%% were predicted: a second attempt is no faster than waiting",
			100*c.wins, 100*c.plan.WinShare)
	}
	return ""
}

// round leaves three digits of a duration.
func round(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	unit := math.Pow(10, math.Floor(math.Log10(float64(d)))-2)
	return time.Duration(math.Round(float64(d)/unit) * unit)
}

// Forecast is what hedging with a budget would do for a method: see [WithDryRun].
type Forecast struct {
	// BudgetPercent is the budget, in hedges per 100 calls.
	BudgetPercent float64
	// Delay, Probability and MaxHedges are what [Auto] would choose.
	Delay       time.Duration
	Probability float64
	MaxHedges   int
	// UnhedgedTail is the target percentile of calls as they are, Tail what it would be.
	UnhedgedTail, Tail time.Duration
	// Load is the number of hedges per call.
	Load float64
}

// forecastBudgets are the budgets, in percent, that a dry run forecasts for.
var forecastBudgets = []float64{2, 5, 10, 20}

// forecasts says what hedging would do; nil as long as too little is known.
func (l *learner) forecasts(c *config, now time.Time) []Forecast {
	e := l.current.Load()
	if e == nil {
		return nil
	}
	_, d := l.window.Split(now, e.since, e.since)
	if d.Total() < autoFrom {
		return nil
	}
	primary := d.Survival()
	unhedged := knee.Tail(primary, c.target)
	twoSeconds := 2 * float64(d.Total()) / c.window.Seconds() // calls, which make the burst
	var rows []Forecast
	for _, percent := range forecastBudgets {
		if plan, ok := knee.Find(c.problem(d, primary, primary, planned(percent, max(twoSeconds*percent/100, 1)))); ok {
			rows = append(rows, Forecast{
				BudgetPercent: percent,
				Delay:         plan.Delay,
				Probability:   plan.Probability,
				MaxHedges:     plan.Hedges,
				UnhedgedTail:  unhedged,
				Tail:          plan.Tail,
				Load:          plan.Load,
			})
		}
	}
	return rows
}

// WithDryRun sends no hedge and reports what it would do: [Stats] counts in DryRun the calls that would have been hedged,
// and [TargetStats] has Forecasts of the tail and the extra load at budgets of 2, 5, 10 and 20 percent, once 200 calls of
// a method are known, whatever [WithBudgetPercent] says. So hedging can be judged on real traffic before it is turned on. A
// forecast takes hedges to be as fast as primaries and independent of them; [Auto] says where they are not.
func WithDryRun() Option {
	return func(c *config) error {
		c.dryRun = true
		return nil
	}
}
