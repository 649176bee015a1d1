package sketch_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// The survival function is the share of longer calls, at every edge of a bucket.
func TestSurvivalOfAnswers(t *testing.T) {
	w, ds := sketch.New(time.Minute), durations(10_000)
	for _, d := range ds {
		w.Record(at(0), d, true)
	}
	slices.Sort(ds)
	s := w.Snapshot(at(0)).Survival()
	for bucket := range sketch.Buckets {
		edge := sketch.UpperEdge(bucket)
		shorter, _ := slices.BinarySearch(ds, edge)
		if want := 1 - float64(shorter)/float64(len(ds)); math.Abs(s.Beyond(bucket)-want) > 1e-9 {
			t.Fatalf("beyond %v: %v, want %v", edge, s.Beyond(bucket), want)
		}
	}
	if s.At(0) != 1 || s.At(-1) != 1 || s.At(time.Hour) != 0 {
		t.Errorf("%v at 0, %v below, %v at an hour", s.At(0), s.At(-1), s.At(time.Hour))
	}
	previous := 1.0
	for d := time.Microsecond; d < time.Hour; d += d/100 + 1 {
		if got := s.At(d); got > previous || got < 0 {
			t.Fatalf("%v at %v, %v before", got, d, previous)
		} else {
			previous = got
		}
	}
}

func distance(a, b *sketch.Survival) float64 {
	slower, faster := sketch.Distance(a, b)
	return max(slower, faster)
}

func TestDistance(t *testing.T) {
	of := func(calls ...time.Duration) *sketch.Survival {
		w := sketch.New(time.Minute)
		for _, d := range calls {
			w.Record(at(0), d, true)
		}
		return w.Snapshot(at(0)).Survival()
	}
	fast, slow := time.Millisecond, time.Second
	for _, tc := range []struct {
		a, b *sketch.Survival
		want float64
	}{
		{of(fast), of(slow), 1},
		{of(slow), of(fast, fast, fast, slow), 0.75},
		{of(fast, slow), of(fast, slow), 0},
	} {
		if d := distance(tc.a, tc.b); d != tc.want {
			t.Errorf("distance %v, want %v", d, tc.want)
		}
	}
}

// Ended is about when calls were over, whatever ended them.
func TestEnded(t *testing.T) {
	w := sketch.New(time.Minute)
	if _, ok := w.Snapshot(at(0)).Ended(0.5); ok {
		t.Error("an empty distribution has an end")
	}
	for range 90 {
		w.Record(at(0), 10*time.Millisecond, true)
	}
	for range 10 {
		w.Record(at(0), 20*time.Millisecond, false)
	}
	w.Record(at(0), time.Second, true)
	d := w.Snapshot(at(0))
	for q, want := range map[float64]time.Duration{0.5: 10 * time.Millisecond, 0.95: 20 * time.Millisecond,
		0.999: time.Second, 0: 0, 1: 0, math.NaN(): 0} {
		if got, ok := d.Ended(q); ok != (want > 0) || ok && off(got, want) > 0.0100001 {
			t.Errorf("Ended(%v) = %v, %v, want %v", q, got, ok, want)
		}
	}
}
