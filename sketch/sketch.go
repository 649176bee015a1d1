// Package sketch learns how long calls take: a distribution of latencies over a sliding window of time. Any number of
// goroutines record into it without a lock, and any number read it.
//
// A quantile is within 1% of the latency that it stands for, from 1 µs to 10 min. A call that was cut short is recorded as
// a lower bound, and does not bias the quantiles: see [Distribution].
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
//
// It uses the buckets of DDSketch (Masson, Rim and Lee, "DDSketch: A Fast and Fully-Mergeable Quantile Sketch with
// Relative-Error Guarantees", VLDB 2019).
package sketch

import (
	"time"

	"github.com/DataDog/sketches-go/ddsketch"

	inner "github.com/grpchedge/hedge/internal/sketch"
)

// Window is a distribution of the latencies recorded within a sliding window of time. It forgets in fifteen steps: what was
// recorded at a time t is in the snapshots until t plus the window, and in none from t plus 16/15 of the window.
//
// Durations outside of 1 µs to 10 min, zero and negative ones among them, count as the nearer end. Times are passed in and
// should come from one clock, such as [time.Now]. They may come in any order, within 290 years of the first. A call
// whose step is forgotten is dropped. A time more than two windows behind the latest means that the clock was set back:
// the window goes by the new one. It takes 180 bytes when it is empty, and at most 140 KB.
//
// All methods may be called concurrently, and none ever waits for another. Make a window with [New].
type Window struct{ in *inner.Window }

// New returns an empty window, from which observations start to leave at the age given, at least a millisecond.
func New(window time.Duration) *Window { return &Window{inner.New(window)} }

// Observe records that a call was answered at now, having taken d.
func (w *Window) Observe(now time.Time, d time.Duration) { w.in.Record(now, d, true) }

// ObserveLonger records that a call was cut short at now, at the age d: it would have taken longer.
func (w *Window) ObserveLonger(now time.Time, d time.Duration) { w.in.Record(now, d, false) }

// Snapshot returns the distribution of what is in the window at now. It never changes.
func (w *Window) Snapshot(now time.Time) *Distribution { return &Distribution{w.in.Snapshot(now)} }

// Distribution is how long calls take. It is the product-limit estimate (Kaplan and Meier, "Nonparametric Estimation from
// Incomplete Observations", 1958): of a call that was cut short it takes into account that it would have lasted longer. It never
// changes. Get one from [Window.Snapshot] or [FromDDSketch].
type Distribution struct{ in *inner.Distribution }

// Count returns how many calls were observed, and of how many a lower bound is known.
func (d *Distribution) Count() (observed, bounded int64) { return d.in.Count() }

// Quantile returns the latency that a share q of calls does not exceed, within 1%. If all of the slower calls were cut short, it
// is the largest bound, and the true quantile is at least that. It is false if nothing was observed, and for a q that is not
// between 0 and 1, both excluded.
func (d *Distribution) Quantile(q float64) (time.Duration, bool) { return d.in.Quantile(q) }

// DDSketch returns the distribution as a sketch of DataDog's library, which can merge it with others, encode it and send it.
// Its values are nanoseconds, within 1%, and its counts need not be whole: a call that was cut short counts among those that
// lasted longer. On 32-bit machines that library computes no values with this mapping.
func (d *Distribution) DDSketch() *ddsketch.DDSketch { return d.in.DDSketch() }

// FromDDSketch returns the distribution of a sketch whose values are nanoseconds, with any mapping. Its error and the 1% of
// this package's buckets add up. Values outside of 1 µs to 10 min count as the nearer end.
func FromDDSketch(s *ddsketch.DDSketch) *Distribution { return &Distribution{inner.FromDDSketch(s)} }
