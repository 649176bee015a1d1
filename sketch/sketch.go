// Package sketch estimates the distribution of latencies over a sliding window of time. A quantile
// is within 1% of the latency, from 1 µs to 10 min. A call that was cut short is recorded as a
// lower bound, and does not bias the quantiles: see [Distribution].
//
//	w := sketch.New(30 * time.Second)
//
//	w.Observe(time.Now(), 12*time.Millisecond)       // answered after 12 ms
//	w.ObserveLonger(time.Now(), 40*time.Millisecond) // canceled at the age of 40 ms
//
//	d := w.Snapshot(time.Now())
//	if p90, ok := d.Quantile(0.90); ok {
//		fmt.Println("one call in ten takes longer than", p90)
//	}
//
// Its buckets are as in DDSketch (Masson, Rim and Lee, VLDB 2019).
package sketch

import (
	"time"

	"github.com/DataDog/sketches-go/ddsketch"

	inner "github.com/grpchedge/hedge/internal/sketch"
)

// Window is a distribution of the latencies recorded within a sliding window of time. It forgets in
// fifteen steps: a call recorded at t is in every snapshot until t plus the window, and in none
// from t plus 16/15 of the window.
//
// Durations outside 1 µs to 10 min are clipped. Times should come from one clock, such as
// [time.Now], in any order. A call in a step that has left the window is dropped. A time more than
// two windows behind the latest means that the clock was set back; the window then follows it. An
// empty window takes 180 bytes, any window at most 140 KB.
//
// All methods are safe for concurrent use, without a lock.
type Window struct{ in *inner.Window }

// New returns an empty window. Observations begin to leave it at the given age, at least a
// millisecond.
func New(window time.Duration) *Window { return &Window{inner.New(window)} }

// Observe records a call that was answered at now with latency d.
func (w *Window) Observe(now time.Time, d time.Duration) { w.in.Record(now, d, true) }

// ObserveLonger records a call that was cut short at now, at age d: its latency is greater than d.
func (w *Window) ObserveLonger(now time.Time, d time.Duration) { w.in.Record(now, d, false) }

// Snapshot returns the distribution of the window at now. It is immutable.
func (w *Window) Snapshot(now time.Time) *Distribution { return &Distribution{w.in.Snapshot(now)} }

// Distribution is an immutable estimate of the latency distribution. It is the product-limit
// estimate (Kaplan and Meier, "Nonparametric Estimation from Incomplete Observations", 1958), which
// counts a call that was cut short as one that would have lasted longer.
type Distribution struct{ in *inner.Distribution }

// Count returns the number of answered calls and the number of calls with only a lower bound.
func (d *Distribution) Count() (observed, bounded int64) { return d.in.Count() }

// Quantile returns the latency that a share q of calls does not exceed, within 1%. If all slower
// calls were cut short, it returns the largest bound, and the true quantile is at least that. ok is
// false if no call was answered, and for q outside (0, 1).
func (d *Distribution) Quantile(q float64) (time.Duration, bool) { return d.in.Quantile(q) }

// DDSketch returns the distribution as a sketch of DataDog's library, which can be merged, encoded
// and sent. Its values are nanoseconds, within 1%. Its counts need not be whole: a call that was
// cut short counts among the calls that lasted longer. On 32-bit machines DataDog's library cannot
// compute values with this mapping.
func (d *Distribution) DDSketch() *ddsketch.DDSketch { return d.in.Counts().DDSketch() }

// FromDDSketch returns the distribution of a sketch of nanoseconds, with any mapping. The sketch's
// error and the 1% of this package's buckets add up. Values outside 1 µs to 10 min are clipped.
func FromDDSketch(s *ddsketch.DDSketch) *Distribution { return &Distribution{inner.FromDDSketch(s)} }
