// Package sketch learns how long calls take: a distribution of latencies over a sliding window of time. Any number of
// goroutines record into it without a lock, and any number read it.
//
// A quantile is within 1% of the latency that it stands for, from 1 µs to 10 min. A call that was cut short is recorded as
// a lower bound, and does not bend the quantiles.
//
//	w := sketch.New(30 * time.Second)
//
//	w.Observe(time.Now(), 12*time.Millisecond)       // answered after 12 ms
//	w.ObserveLonger(time.Now(), 40*time.Millisecond) // cancelled at the age of 40 ms
//
//	d := w.Snapshot(time.Now())
//	if p90, ok := d.Quantile(0.90); ok {
//		fmt.Println("one call in ten takes longer than", p90)
//	}
package sketch

import (
	"time"

	"github.com/grpchedge/hedge/internal/latency"
)

// Window is a distribution of the latencies recorded within a sliding window of time. It forgets in fifteen steps: what was
// recorded at a time t is in the snapshots until t plus the window, and in none from t plus 16/15 of the window.
//
// Durations outside of 1 µs to 10 min, zero and negative ones among them, count as the nearer end. Times are passed in and
// should come from one clock, as those of [time.Now] do. They may come in any order. A time more than two windows behind
// the latest means that the clock was set back, and the window goes by the new one.
//
// Memory is allocated as it is needed: less than 1 KB with one observation, 17 KB where latencies spread evenly over one
// decade in every step, and at most 140 KB. All methods may be called concurrently, and none waits for another.
type Window struct{ window *latency.Window }

// New returns an empty window. Observations start to leave at the given age. A window shorter than a millisecond is taken
// for one of a millisecond.
func New(window time.Duration) *Window { return &Window{latency.New(window)} }

// Observe records that a call was answered at now, having taken d. It takes some 20 ns and seldom allocates.
func (w *Window) Observe(now time.Time, d time.Duration) { w.window.Observe(now, d) }

// ObserveLonger records that a call took longer than d: it was cut short at now, unanswered at the age d.
func (w *Window) ObserveLonger(now time.Time, d time.Duration) { w.window.ObserveLonger(now, d) }

// Snapshot returns the distribution of what is in the window at now. It takes 5 to 30 µs and allocates at most 17 KB.
func (w *Window) Snapshot(now time.Time) *Distribution { return &Distribution{w.window.Snapshot(now)} }

// Distribution is what a [Window] held at one moment. It never changes, and may be used concurrently.
type Distribution struct{ distribution *latency.Distribution }

// Count returns how many calls were observed, and of how many only a lower bound is known.
func (d *Distribution) Count() (observed, longer int64) { return d.distribution.Count() }

// Quantile returns the latency that a share q of calls does not exceed, within 1% and rounded to nanoseconds. Lower bounds
// are weighed by the product-limit method (Kaplan and Meier, "Nonparametric Estimation from Incomplete Observations", JASA
// 1958). Where all of the slower calls were cut short, it is the largest bound, and the true quantile is at least that.
//
// It is false if nothing was observed, and for a q that is not between 0 and 1, both excluded.
func (d *Distribution) Quantile(q float64) (time.Duration, bool) { return d.distribution.Quantile(q) }
