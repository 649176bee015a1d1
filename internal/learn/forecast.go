package learn

import (
	"time"

	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/stats"
)

// forecastBudgets are the budgets, in percent, that are forecast for.
var forecastBudgets = []float64{2, 5, 10, 20}

// Forecasts says what hedging would do; nil as long as too little is known.
func (l *Learner) Forecasts(now time.Time) []stats.Forecast {
	e := l.current.Load()
	if e == nil {
		return nil
	}
	_, own := l.window.Split(now, e.since, e.since)
	d := l.believed(own)
	if d.Total() < autoFrom {
		return nil
	}
	c, primary := l.config.Load(), d.Survival()
	unhedged := knee.Tail(primary, c.Target)
	twoSeconds := 2 * float64(own.Total()) / c.Window.Seconds() // calls, which make the burst
	var rows []stats.Forecast
	for _, percent := range forecastBudgets {
		if plan, ok := knee.Find(c.problem(d, primary, primary, planned(percent, max(twoSeconds*percent/100, 1)))); ok {
			rows = append(rows, stats.Forecast{
				BudgetPercent: percent, Delay: plan.Delay, Probability: plan.Probability, MaxHedges: plan.Hedges,
				UnhedgedTail: unhedged, Tail: plan.Tail, Load: plan.Load,
			})
		}
	}
	return rows
}
