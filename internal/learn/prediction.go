package learn

import (
	"time"

	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/sketch"
)

// Prediction is what hedging would do to calls of which none was hedged. It takes hedges for independent of their primaries,
// and for as fast.
type Prediction struct {
	Plan knee.Plan // that would be in force
	Down bool      // hedging would step down, as there is little to gain

	problem knee.Problem
}

// Predict predicts from what the calls took. It plans for so many calls a second that the bucket is no bound. It is false if they are
// too few to choose from, or none may be hedged.
func (c *Config) Predict(calls *sketch.Distribution) (Prediction, bool) {
	if calls.Total() < autoFrom {
		return Prediction{}, false
	}
	primary := calls.Survival()
	problem := c.problem(calls, primary, primary, c.BudgetPercent/100*mostPlanned)
	plan, ok := knee.Find(problem)
	if !ok {
		return Prediction{}, false
	}
	p := Prediction{Plan: plan, problem: problem}
	if p.Down = c.gain(primary, plan) < worthwhile; p.Down {
		p.Plan = problem.Predict(c.leastGain(primary, plan))
	}
	return p, true
}

// Without returns the percentile, as a quantile, of the calls as they are.
func (p Prediction) Without(q float64) time.Duration { return knee.Tail(p.problem.Primary, q) }

// With returns the percentile, as a quantile, that hedging would make of it.
func (p Prediction) With(q float64) time.Duration { return p.problem.Percentile(p.Plan, q) }

// PredictFrom is how many calls a prediction needs at least.
const PredictFrom = autoFrom
