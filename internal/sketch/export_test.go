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
		t.Errorf("%v calls in the counts of the counts, want 5000", got)
	}
}

// TestPlus_IsOneWindow adds answered calls to a distribution of answers and bounds: the sum equals
// a window with all of them.
func TestPlus_IsOneWindow(t *testing.T) {
	now := time.Unix(1e9, 0)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		own, others, both := sketch.New(time.Minute), sketch.New(time.Minute), sketch.New(time.Minute)
		draw := func() time.Duration { return time.Duration(5e6 * math.Exp(r.NormFloat64())) }
		for range r.IntN(100) {
			if d := draw(); r.IntN(3) == 0 {
				own.Record(now, d, false)
				both.Record(now, d, false)
			} else {
				own.Record(now, d, true)
				both.Record(now, d, true)
			}
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
		if gotEnded, _ := got.Ended(0.5); gotEnded != first(own.Snapshot(now).Ended(0.5)) {
			t.Fatalf("seed %d: calls that others made have ended here", seed)
		}
	}
}

func first(d time.Duration, _ bool) time.Duration { return d }

func TestCounts_Times(t *testing.T) {
	a := sketch.Counts{{Bucket: 1, Calls: 1}, {Bucket: 5, Calls: 2}}
	equal := func(name string, got, want sketch.Counts) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: %v, want %v", name, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	}
	equal("a · 2", a.Times(2), sketch.Counts{{Bucket: 1, Calls: 2}, {Bucket: 5, Calls: 4}})
	equal("a · 0", a.Times(0), nil)
	if nothing := (&sketch.Distribution{}).Counts(); nothing != nil {
		t.Errorf("the empty distribution has %v", nothing)
	}
}
