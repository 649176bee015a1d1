package trigger

import (
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// observed is the share of the predicted savings that hedges at an age achieved (kept), and the
// number of calls that it stems from.
type observed struct {
	age   time.Duration
	kept  float64
	calls float64
}

// kept returns the expected share of the predicted savings, 0 to 1, for a first hedge at age.
func (s *search) kept(age time.Duration) float64 {
	calls, sum := assumed+0.0, assumed+0.0
	for _, o := range s.outcomes {
		apart := math.Abs(math.Log(float64(age) / float64(o.age)))
		if near := 1 - apart/unrelated; near > 0 {
			calls += near * o.calls
			sum += near * o.calls * o.kept
		}
	}
	return min(max(sum/calls, 0), 1)
}

// observe compares the outcomes with the predicted latency without hedges, and with hedges that are
// independent of their primaries. Each time is weighted by the effect of a small change of the
// share on the tail: the derivative of the logarithm.
func (s *search) observe() {
	for _, o := range s.Outcomes {
		// Ages are averages of delays, which are bucket edges. Without the added thousandth,
		// rounding could move an age into the bucket below.
		rest, due := new(sketch.Distribution).Plus(o.Rest).Survival(), s.Primary.At(o.Age+o.Age/1000)
		if rest == nil || due <= 0 {
			continue
		}
		every := HedgePlan{Delay: o.Age, Probability: 1, Hedges: o.Hedges}
		predicted, saved := 0.0, 0.0
		for _, p := range s.points {
			if p.at <= o.Age || p.share <= 0 {
				continue
			}
			without, weight := p.share/due, p.width/p.share
			predicted += weight * without * s.answered(every, p.at)
			saved += weight * (without - rest.At(p.at-o.Age))
		}
		if predicted > 0 {
			s.outcomes = append(s.outcomes, observed{o.Age, saved / predicted, o.Rest.Total()})
		}
	}
}
