package run

import (
	"slices"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
)

// Second is what happened in one second of a run. A call belongs to the second in which it started,
// a hedge to the one in which it reached the server.
type Second struct {
	Calls, Hedges int
	P99           time.Duration
	Delay         time.Duration // learned at its end; 0 if nothing was, or if the policy learns nothing
}

// ExtraLoad is the hedges of the second as a share of its calls.
func (s Second) ExtraLoad() float64 { return float64(s.Hedges) / float64(max(s.Calls, 1)) }

// Seconds returns the run second by second; nil if nothing was recorded.
func (r *Result) Seconds() []Second {
	if len(r.Began) == 0 {
		return nil
	}
	course := make([]Second, int(slices.Max(r.Began)/time.Second)+1)
	latencies := make([][]time.Duration, len(course))
	for n, at := range r.Began {
		s := int(at / time.Second)
		course[s].Calls++
		latencies[s] = append(latencies[s], r.Latencies[n])
	}
	for _, at := range r.hedges {
		if s := int(at / time.Second); s < len(course) {
			course[s].Hedges++
		}
	}
	for _, learned := range r.samples {
		if s := int(learned.at/time.Second) - 1; s >= 0 && s < len(course) {
			course[s].Delay = learned.delay
		}
	}
	for s := range course {
		if slices.Sort(latencies[s]); len(latencies[s]) > 0 {
			course[s].P99 = figure.Quantile(latencies[s], 0.99)
		}
	}
	return course
}
