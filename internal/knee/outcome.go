package knee

import (
	"math"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// Outcome is the remaining latency of hedged calls with about the same age at their first hedge.
type Outcome struct {
	Age    time.Duration // at which the first hedge was sent, on average
	Hedges int           // bound on the hedges of these calls
	Rest   sketch.Counts // remaining latency after the first hedge
}

// observed is the share of the predicted savings that hedges at an age achieved (kept), and the
// number of calls that it stems from.
type observed struct {
	age   time.Duration
	kept  float64
	calls float64
}

const (
	// unrelated is the distance of two ages, in logarithms, from which outcomes at one do not apply
	// at the other: an octave.
	unrelated = math.Ln2
	// assumed is the weight of the prior, which trusts the prediction, in calls.
	assumed = 8
)

// kept returns the expected share of the predicted savings, 0 to 1, for a first hedge at age.
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

// distance returns the distance of two times, in logarithms.
func distance(a, b time.Duration) float64 { return math.Abs(math.Log(float64(a) / float64(b))) }

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
