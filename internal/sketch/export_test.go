package sketch_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// TestCounts_BelieveTheDistribution cuts a fifth of the calls short: the counts have the quantiles
// of the distribution, and as many calls.
func TestCounts_BelieveTheDistribution(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1e9, 0)
	w := sketch.New(time.Minute)
	for range 5_000 {
		d := time.Duration(5e6 * math.Exp(r.NormFloat64()))
		if cut := time.Duration(r.ExpFloat64() * 3e7); cut < d {
			w.Record(now, cut, false)
		} else {
			w.Record(now, d, true)
		}
	}
	d := w.Snapshot(now)
	counts := d.Counts()
	if got := counts.Total(); math.Abs(got-5_000) > 0.01 {
		t.Errorf("%v calls, want 5000", got)
	}
	again := (&sketch.Distribution{}).Plus(counts)
	for q := 0.01; q < 1; q += 0.01 {
		want, _ := d.Quantile(q)
		got, _ := again.Quantile(q)
		if math.Abs(float64(got)/float64(want)-1) > 0.021 { // one bucket
			t.Errorf("quantile %.2f: %v of the counts, %v of the distribution", q, got, want)
		}
	}
	if got := again.Counts().Total(); math.Abs(got-5_000) > 0.01 {
		t.Errorf("%v calls in the counts made from counts, want 5000", got)
	}
}

// TestPlus_IsOneWindow adds answered calls to a distribution of answers and bounds: the sum equals
// a window with all of them.
func TestPlus_IsOneWindow(t *testing.T) {
	now := time.Unix(1e9, 0)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 3))
		own, others, both := sketch.New(time.Minute), sketch.New(time.Minute), sketch.New(time.Minute)
		draw := func() time.Duration { return time.Duration(5e6 * math.Exp(r.NormFloat64())) }
		for range r.IntN(100) {
			d, answered := draw(), r.IntN(3) != 0
			own.Record(now, d, answered)
			both.Record(now, d, answered)
		}
		for range 1 + r.IntN(100) {
			d := draw()
			others.Record(now, d, true)
			both.Record(now, d, true)
		}
		got, want := own.Snapshot(now).Plus(others.Snapshot(now).Counts()), both.Snapshot(now)
		if got.Total() != want.Total() {
			t.Fatalf("seed %d: %d calls, want %d", seed, got.Total(), want.Total())
		}
		if d := distance(got.Survival(), want.Survival()); d > 1e-5 {
			t.Fatalf("seed %d: the survival functions differ by %v", seed, d)
		}
	}
}

// A doubly counted call weighs double until it fades.
func TestCounts_Fade(t *testing.T) {
	var f sketch.Counts
	if new(sketch.Distribution).Plus(f).Survival() != nil || f.Total() != 0 {
		t.Error("an empty histogram has a quantile")
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
	if f.Total() != 100 || s.Last != sketch.Bucket(time.Second) {
		t.Errorf("a weight of %v, the last in bucket %d", f.Total(), s.Last)
	}
	f = f.Times(0)
	if new(sketch.Distribution).Plus(f).Survival() != nil {
		t.Error("an empty distribution has calls left")
	}
}

func TestMean(t *testing.T) {
	w := sketch.New(time.Minute)
	if got := w.Snapshot(at(0)).Mean(); got != 0 {
		t.Errorf("no calls, but a mean of %v", got)
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
