package knee

import (
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// Outcome is what became of calls whose first hedge was sent at about one age.
type Outcome struct {
	Age    time.Duration // at which it was, on average
	Hedges int           // the most that these calls could have
	Rest   sketch.Counts // what they still took from then on
}

// observed is how much of the time that hedges at an age were to save they have saved, and in how many calls.
type observed struct {
	age   time.Duration
	kept  float64
	calls float64
}

const (
	// unrelated is how far apart two ages are of which one says nothing about the other, in logarithms: an octave.
	unrelated = math.Ln2
	// assumed is how many calls the prediction counts for against what was observed.
	assumed = 8
)

// kept is the share of what is predicted of hedges that is kept where the first one is sent at an age.
func (s *search) kept(age time.Duration) float64 {
	calls, sum := assumed+0.0, assumed+0.0
	for _, o := range s.outcomes {
		if near := 1 - distance(age, o.age)/unrelated; near > 0 {
			calls += near * o.calls
			sum += near * o.calls * o.kept
		}
	}
	return min(max(sum/calls, 0), 1)
}

// distance is how far two times are apart, in logarithms.
func distance(a, b time.Duration) float64 { return math.Abs(math.Log(float64(a) / float64(b))) }

// observe compares the outcomes with what calls would take without hedges, and with hedges that are independent of their
// primaries. A time counts by what a small change of the share adds to the tail: the logarithm's derivative.
func (s *search) observe() {
	for _, o := range s.Outcomes {
		// Ages are averages of delays, which are edges of buckets: without the thousandth, rounding would take one into the bucket below.
		rest, due := new(sketch.Distribution).Plus(o.Rest).Survival(), s.Primary.At(o.Age+o.Age/1000)
		if rest == nil || due <= 0 {
			continue
		}
		predicted, saved := 0.0, 0.0
		for _, p := range s.points {
			if p.at <= o.Age || p.share <= 0 {
				continue
			}
			without, after := p.share/due, p.at-o.Age
			with := without * s.Hedge.At(after)
			for k := 1; k < o.Hedges && time.Duration(k)*o.Age < after; k++ {
				with *= s.Hedge.At(after - time.Duration(k)*o.Age)
			}
			weight := p.width / p.share
			predicted += weight * (without - with)
			saved += weight * (without - rest.At(after))
		}
		if predicted > 0 {
			s.outcomes = append(s.outcomes, observed{o.Age, saved / predicted, o.Rest.Total()})
		}
	}
}
