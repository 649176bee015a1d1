package trigger

import (
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/stats"
)

// Prediction predicts the effect of hedging on unhedged calls. It assumes hedges as fast as
// primaries and independent of them.
type Prediction struct {
	Plan    HedgePlan // the plan that would be in force
	problem Problem
}

// Predict predicts from the latency of calls, for a bucket of the given capacity. ok is false for
// fewer than [PredictFrom] calls, or if no plan exists.
func (c *Config) Predict(calls *sketch.Distribution, capacity float64) (p Prediction, ok bool) {
	if calls.Total() < PredictFrom {
		return p, false
	}
	primary := calls.Survival()
	p.problem = Problem{
		Primary: primary, Hedge: primary, Price: budget.LeastPrice,
		Load: c.BudgetPercent / 100, Tokens: capacity, Hedges: c.MaxHedges, MinDelay: c.MinDelay, Latest: c.Latest,
	}
	p.Plan, ok = Find(p.problem)
	return p, ok
}

// Without returns the percentile, as a quantile, of unhedged calls.
func (p Prediction) Without(q float64) time.Duration { return Tail(p.problem.Primary, q) }

// With returns the predicted percentile, as a quantile, of hedged calls.
func (p Prediction) With(q float64) time.Duration { return p.problem.Percentile(p.Plan, q) }

// Forecasts predicts the effect of hedging with budgets of 2, 5, 10 and 20%. It returns nil while
// too few calls are known.
func (l *Learner) Forecasts(now time.Time) []stats.Forecast {
	e := l.current.Load()
	if e == nil {
		return nil
	}
	c, d := *l.config.Load(), l.window.Between(now, e.since, sketch.Latest)
	capacity := l.owner.Budget.Balance(now).Capacity
	var rows []stats.Forecast
	perPercent := capacity / max(c.BudgetPercent, 1)
	for _, percent := range []float64{2, 5, 10, 20} {
		c.BudgetPercent = percent
		if p, ok := c.Predict(d, max(perPercent*percent, budget.New(percent).Balance(now).Capacity)); ok {
			rows = append(rows, stats.Forecast{
				BudgetPercent: percent, Delay: p.Plan.Delay, Probability: p.Plan.Probability, MaxHedges: p.Plan.Hedges,
				UnhedgedTail: p.Without(reported), Tail: p.With(reported), Load: min(p.Plan.Load, percent/100),
			})
		}
	}
	return rows
}
