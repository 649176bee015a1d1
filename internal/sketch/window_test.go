package sketch_test

import (
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// every returns the multiples of a time from 0 to another.
func every(step, last time.Duration) []time.Duration {
	var times []time.Duration
	for d := time.Duration(0); d <= last; d += step {
		times = append(times, d)
	}
	return times
}

func count(w *sketch.Window, now time.Time) int64 {
	observed, bounded := w.Snapshot(now).Count()
	return observed + bounded
}

// A call stays for a window, and is gone after 16/15 of it.
func TestObservationsLeave(t *testing.T) {
	const ms, s, day = time.Millisecond, time.Second, 24 * time.Hour
	for _, tt := range []struct {
		name     string
		window   time.Duration
		recorded []time.Duration
		want     map[time.Duration]int64 // at a time → how many
	}{
		{name: "first of a step", window: 30 * s, recorded: []time.Duration{0},
			want: map[time.Duration]int64{0: 1, 30 * s: 1, 32*s - 1: 1, 32 * s: 0}},
		{name: "last of a step", window: 30 * s, recorded: []time.Duration{0, 2*s - 1},
			want: map[time.Duration]int64{30 * s: 2, 32*s - 1: 2, 32 * s: 0}},
		{name: "each step alone", window: 30 * s, recorded: every(2*s, 30*s), want: map[time.Duration]int64{
			30 * s: 16, 32 * s: 15, 34 * s: 14, 48 * s: 7, 58 * s: 2, 60 * s: 1, 62 * s: 0,
		}},
		{name: "the shortest", window: ms, recorded: []time.Duration{0},
			want: map[time.Duration]int64{ms: 1, ms + ms/15: 0}},
		{name: "negative", window: math.MinInt64, recorded: []time.Duration{0},
			want: map[time.Duration]int64{ms: 1, ms + ms/15: 0}},
		{name: "for ever", window: math.MaxInt64, recorded: []time.Duration{0},
			want: map[time.Duration]int64{100 * 365 * day: 1}},
	} {
		w := sketch.New(tt.window)
		for _, d := range tt.recorded {
			w.Record(at(d), time.Millisecond, true)
		}
		for now, want := range tt.want {
			if got := count(w, at(now)); got != want {
				t.Errorf("%s: %d at %v, want %d", tt.name, got, now, want)
			}
		}
	}
}

func TestTimesInAnyOrder(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name     string
		recorded []time.Duration
		now      time.Duration
		want     int64
	}{
		{name: "back and forth within the window", recorded: []time.Duration{20 * s, 0, 29 * s, 10 * s, 1}, now: 30 * s,
			want: 5},
		{name: "before the first", recorded: []time.Duration{20 * s, -1, -9 * s}, now: 20 * s, want: 3},
		{name: "too late to count", recorded: []time.Duration{36 * s, 1 * s}, now: 36 * s, want: 1},
		{name: "an hour late, which costs one step at most", recorded: []time.Duration{time.Hour, time.Hour + 5*s, 17 * s},
			now: time.Hour + 5*s, want: 1},
		{name: "a clock set back", recorded: []time.Duration{time.Hour, time.Hour + 5*s, 5 * s, 6 * s, 15 * s},
			now: 20 * s, want: 3},
		{name: "from the far future", recorded: []time.Duration{0, 250*365*24*time.Hour + 6*s, 5 * s}, now: 10 * s,
			want: 2},
	} {
		w := sketch.New(30 * s)
		for _, d := range tt.recorded {
			w.Record(at(d), time.Millisecond, true)
		}
		if got := count(w, at(tt.now)); got != tt.want {
			t.Errorf("%s: %d in the window, want %d", tt.name, got, tt.want)
		}
	}
}

// Rule 15: a snapshot is read again and again, by any number of callers, and never changes under
// them.
func TestRule15_SnapshotNeverChanges(t *testing.T) {
	w := sketch.New(30 * time.Second)
	for i := range 100 {
		w.Record(at(0), time.Duration(i)*time.Millisecond, true)
	}
	d := w.Snapshot(at(0))
	p50, _ := d.Quantile(0.5)
	for i := range 10_000 {
		w.Record(at(time.Duration(i)*time.Millisecond), time.Second, true)
		w.Record(at(time.Duration(i)*time.Millisecond), time.Second, false)
	}
	w.Snapshot(at(time.Hour))
	if got, _ := d.Quantile(0.5); got != p50 {
		t.Errorf("p50 changed from %v to %v", p50, got)
	}
	if o, b := d.Count(); o != 100 || b != 0 {
		t.Errorf("Count changed to %d, %d", o, b)
	}
	if n := testing.AllocsPerRun(100, func() { d.Quantile(0.99) }); n != 0 {
		t.Errorf("Quantile: %v allocations, want 0", n)
	}
}

// TestDraws checks that the share of draws below a probability is that probability.
func TestDraws(t *testing.T) {
	var e sketch.Draws
	for _, share := range []float64{0.5, 0.1, 1.0 / 64} {
		n := 0
		for range 1000 {
			if e.Next() < share {
				n++
			}
		}
		if want := 1000 * share; math.Abs(float64(n)-want) > 3 {
			t.Errorf("%d of 1000 numbers are below %v", n, share)
		}
	}
}
