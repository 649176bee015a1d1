package sketch_test

import (
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// A doubly counted call weighs double until it fades.
func TestCounts_Fade(t *testing.T) {
	var f sketch.Counts
	if new(sketch.Distribution).Plus(f).Survival() != nil || f.Total() != 0 {
		t.Error("an empty histogram knows something")
	}
	for range 100 {
		f.Add(10 * time.Millisecond)
	}
	f = f.Times(0.25)
	for range 75 {
		f.Add(time.Second)
	}
	s := new(sketch.Distribution).Plus(f).Survival()
	for d, want := range map[time.Duration]float64{time.Millisecond: 1, 20 * time.Millisecond: 0.75, 2 * time.Second: 0} {
		if got := s.At(d); math.Abs(got-want) > 1e-6 {
			t.Errorf("%v at %v, want %v", got, d, want)
		}
	}
	if f.Total() != 100 || s.Last() != sketch.Bucket(time.Second) {
		t.Errorf("a weight of %v, the last in bucket %d", f.Total(), s.Last())
	}
	f = f.Times(0)
	if new(sketch.Distribution).Plus(f).Survival() != nil {
		t.Error("something is left of nothing")
	}
}

func TestMean(t *testing.T) {
	w := sketch.New(time.Minute)
	if got := w.Snapshot(at(0)).Mean(); got != 0 {
		t.Errorf("nothing takes %v on average", got)
	}
	for range 90 {
		w.Record(at(0), 10*time.Millisecond, true)
	}
	for range 10 {
		w.Record(at(0), time.Second, true)
	}
	if got, want := w.Snapshot(at(0)).Mean(), 109*time.Millisecond; off(got, want) > 0.01 {
		t.Errorf("a mean of %v, want %v", got, want)
	}
	bounds := sketch.New(time.Minute)
	bounds.Record(at(0), 10*time.Millisecond, true)
	bounds.Record(at(0), 100*time.Millisecond, false)
	if got, want := bounds.Snapshot(at(0)).Mean(), 55*time.Millisecond; off(got, want) > 0.01 {
		t.Errorf("a mean of %v, want %v", got, want)
	}
}
