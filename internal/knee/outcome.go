package knee

import (
	"math"
	"time"

	"github.com/grpchedge/hedge/sketch"
)

// Outcome is what became of calls whose first hedge was sent at about one age.
type Outcome struct {
	Age    time.Duration // at which it was, on average
	Hedges int           // the most that these calls could have
	Rest   sketch.Counts // what they still took from then on
}

// outlook is what the percentiles of a plan are predicted from.
type outlook struct {
	Plan
	due      float64   // share of calls that reach the delay
	observed *observed // nil: nothing is known of calls that were hedged at about the delay
}

// observed is an outcome, how far it is to be believed, and what belongs together with it.
type observed struct {
	Outcome
	rest   *sketch.Survival // of Outcome.Rest, and the number of its calls
	calls  float64
	due    float64     // share of calls that reach the age
	weight float64     // from 0 to 1
	pool   []*observed // the outcome and those of ages around it, for a skeptic
	pooled float64     // calls in the pool
}

const (
	// step is how far the ages at which hedges were sent may lie from a delay, in logarithms, for the outcome to say something
	// about the delay: half of a third of an octave.
	step = math.Ln2 / 6
	// assumed is the number of calls that the independent prediction counts for against an outcome.
	assumed = 20
	// byChance is how far the outcome of n calls differs from the prediction by chance alone, in units of 1/√n.
	byChance = 1.2
	// shown is how many calls a skeptic needs, of ages within so many steps of each other.
	shown     = 50
	poolSteps = 3
)

func (s *search) outlook(plan Plan) outlook {
	o := outlook{Plan: plan, due: dueAt(s.Primary, plan.Delay, 1)}
	most := 0.0
	for i := range s.outcomes {
		of := &s.outcomes[i]
		if distance(plan.Delay, of.Age) > step || s.Skeptical && of.pooled < shown {
			continue
		}
		calls := of.calls
		if of.Hedges != plan.Hedges {
			calls /= 2
		}
		if calls > most {
			most, o.observed = calls, of
		}
	}
	return o
}

// distance is how far two times are apart, in logarithms.
func distance(a, b time.Duration) float64 { return math.Abs(math.Log(float64(a) / float64(b))) }

// search weighs each outcome by how far it is to be believed: not at all where what was predicted differs from it no more than
// chance would make it. A skeptic believes every one, and pools it with those of ages around its own.
func (p Problem) search() *search {
	s := &search{Problem: p}
	for _, outcome := range s.Outcomes {
		rest := sketch.FromCounts(outcome.Rest, nil).Survival()
		of := observed{Outcome: outcome, rest: rest, calls: outcome.Rest.Total(), due: s.Primary.At(outcome.Age), weight: 1}
		if rest == nil || of.due <= 0 {
			continue
		}
		if !s.Skeptical {
			of.weight = s.weight(&of)
		}
		s.outcomes = append(s.outcomes, of)
	}
	if !s.Skeptical {
		return s
	}
	for i := range s.outcomes {
		of := &s.outcomes[i]
		for j := range s.outcomes {
			if other := &s.outcomes[j]; distance(of.Age, other.Age) < 2*poolSteps*step {
				of.pool = append(of.pool, other)
				of.pooled += other.calls
			}
		}
	}
	return s
}

func (s *search) weight(of *observed) float64 {
	most := 0.0
	for bucket := 0; bucket <= of.rest.Last(); bucket += 4 {
		most = max(most, math.Abs(of.rest.Beyond(bucket)-s.expected(of, sketch.UpperEdge(bucket))))
	}
	chance := byChance / math.Sqrt(of.calls)
	if most <= chance {
		return 0
	}
	return of.calls / (of.calls + assumed) * (1 - chance*chance/most/most)
}

// surprise is by how much more of the calls take longer than rest, after their first hedge, than was expected.
func (s *search) surprise(of *observed, rest time.Duration) float64 {
	if of.pool == nil {
		return of.weight * (of.rest.At(rest) - s.expected(of, rest))
	}
	sum := 0.0
	for _, other := range of.pool {
		sum += other.calls * (other.rest.At(rest) - s.expected(other, rest))
	}
	return sum / of.pooled
}

// expected is what rest would be after so long if hedges were independent of their primaries.
func (s *search) expected(of *observed, rest time.Duration) float64 {
	left := s.Primary.At(of.Age+rest) / of.due * s.Hedge.At(rest)
	for k := 1; k < of.Hedges && time.Duration(k)*of.Age < rest; k++ {
		left *= s.Hedge.At(rest - time.Duration(k)*of.Age)
	}
	return left
}
