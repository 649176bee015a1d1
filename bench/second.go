package main

import (
	"slices"
	"time"
)

// second is what happened in one second of a run, by when calls began and when hedges reached the server.
type second struct {
	calls, hedges int
	p99           time.Duration
	delay         time.Duration // learned at its end; 0 if nothing was, or if the policy learns nothing
}

func (s second) extraLoad() float64 { return float64(s.hedges) / float64(max(s.calls, 1)) }

// seconds is the course of a run.
func (r *result) seconds() []second {
	if len(r.began) == 0 {
		return nil
	}
	course := make([]second, int(slices.Max(r.began)/time.Second)+1)
	latencies := make([][]time.Duration, len(course))
	for n, at := range r.began {
		s := int(at / time.Second)
		course[s].calls++
		latencies[s] = append(latencies[s], r.latencies[n])
	}
	for _, at := range r.hedges {
		if s := int(at / time.Second); s < len(course) {
			course[s].hedges++
		}
	}
	for _, learned := range r.samples {
		if s := int(learned.at/time.Second) - 1; s >= 0 && s < len(course) {
			course[s].delay = learned.delay
		}
	}
	for s := range course {
		if slices.Sort(latencies[s]); len(latencies[s]) > 0 {
			course[s].p99 = quantile(latencies[s], 0.99)
		}
	}
	return course
}
