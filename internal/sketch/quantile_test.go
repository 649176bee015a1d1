package sketch_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/DataDog/sketches-go/ddsketch"

	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver"
)

var origin = time.Now()

func at(d time.Duration) time.Time { return origin.Add(d) }

// off returns by how much got differs from want, beyond the half nanosecond that it is rounded by.
func off(got, want time.Duration) float64 {
	return max(0, math.Abs(float64(got-want))-0.5) / float64(want)
}

func quantile(t *testing.T, d *sketch.Distribution, q float64) time.Duration {
	t.Helper()
	v, ok := d.Quantile(q)
	if !ok {
		t.Fatalf("Quantile(%v) of a distribution with observations is false", q)
	}
	return v
}

// either draws from slow with a probability, and else from fast.
func either(fast testserver.Distribution, probability float64, slow testserver.Distribution) testserver.Distribution {
	return testserver.Mixture(testserver.Part{Weight: 1 - probability, Distribution: fast},
		testserver.Part{Weight: probability, Distribution: slow})
}

// Without lower bounds a quantile is the sample of that rank, within 1%.
func TestQuantileIsWithinOnePercentOfItsSample(t *testing.T) {
	distributions := map[string]testserver.Distribution{
		"lognormal": testserver.LogNormal(5*time.Millisecond, 2*time.Millisecond),
		"straggler": testserver.Straggler(testserver.LogNormal(5*time.Millisecond, 2*time.Millisecond), 0.05, 10),
		"pareto":    testserver.Pareto(3*time.Millisecond, 1.5),
		"bimodal": either(testserver.LogNormal(15*time.Millisecond, 3*time.Millisecond), 0.2,
			testserver.LogNormal(200*time.Millisecond, 25*time.Millisecond)),
		"microseconds": testserver.Uniform(time.Microsecond, 20*time.Microsecond),
		"whole range":  testserver.Add(testserver.Pareto(time.Microsecond, 0.05)),
		"minutes":      testserver.Uniform(30*time.Second, 599*time.Second),
	}
	for name, l := range distributions {
		for seed := range uint64(14) {
			r := rand.New(rand.NewPCG(seed, 0))
			samples := make([]time.Duration, 1+r.IntN(1<<(seed%14)))
			w := sketch.New(time.Minute)
			for i := range samples {
				samples[i] = min(max(l.Draw(r), time.Microsecond), 10*time.Minute)
				w.Record(at(time.Duration(r.Int64N(int64(time.Minute)))), samples[i], true)
			}
			slices.Sort(samples)
			d := w.Snapshot(at(time.Minute - 1))
			for _, q := range []float64{1e-9, 0.001, 0.1, 0.25, 0.5, 2. / 3, 0.9, 0.95, 0.99, 0.999, 1 - 1e-9, r.Float64()} {
				rank := max(1, math.Ceil(q*float64(len(samples))*(1-1e-9)))
				want := samples[int(rank)-1]
				if got := quantile(t, d, q); off(got, want) > 0.0100001 {
					t.Errorf("%s, seed %d, %d samples: Quantile(%v) = %v, want %v", name, seed, len(samples), q, got, want)
				}
			}
		}
	}
}

func TestQuantileRefuses(t *testing.T) {
	observed, bounded, empty := sketch.New(time.Minute), sketch.New(time.Minute), sketch.New(time.Minute)
	observed.Record(at(0), time.Second, true)
	bounded.Record(at(0), time.Second, false)
	for _, tt := range []struct {
		name string
		d    *sketch.Distribution
		q    float64
		ok   bool
	}{
		{name: "one observation", d: observed.Snapshot(at(0)), q: 0.5, ok: true},
		{name: "q of 0", d: observed.Snapshot(at(0))},
		{name: "q of 1", d: observed.Snapshot(at(0)), q: 1},
		{name: "q not a number", d: observed.Snapshot(at(0)), q: math.NaN()},
		{name: "no observation", d: empty.Snapshot(at(0)), q: 0.5},
		{name: "only lower bounds", d: bounded.Snapshot(at(0)), q: 0.5},
		{name: "zero value", d: new(sketch.Distribution), q: 0.5},
	} {
		if v, ok := tt.d.Quantile(tt.q); ok != tt.ok || (v != 0) != ok {
			t.Errorf("%s: Quantile(%v) = %v, %v, want %v", tt.name, tt.q, v, ok, tt.ok)
		}
	}
}

// TestUpperEdge_IsWhereBucketsEnd holds on 32-bit machines too: GOARCH=386 go test ./sketch.
func TestUpperEdge_IsWhereBucketsEnd(t *testing.T) {
	last := sketch.Bucket(time.Hour)
	for b := range last {
		edge := sketch.UpperEdge(b)
		if below, above := sketch.Bucket(edge-1), sketch.Bucket(edge); below != b || above != b+1 {
			t.Errorf("bucket %d ends at %v: before it there is bucket %d, and then %d", b, edge, below, above)
		}
	}
	if edge := sketch.UpperEdge(last); edge != 10*time.Minute {
		t.Errorf("the last bucket ends at %v", edge)
	}
	for d, want := range map[time.Duration]int{math.MinInt64: 0, -1: 0, 0: 0, math.MaxInt64: last} {
		if got := sketch.Bucket(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
}

var percentiles = []float64{0.01, 0.25, 0.5, 0.9, 0.99, 0.999}

// TestDDSketch_MergesToOneWindow records into two windows, and into one all of it: the merged
// sketches of the two have the quantiles of the one, there and back.
func TestDDSketch_MergesToOneWindow(t *testing.T) {
	now, r, straggler := time.Unix(1e9, 0), rand.New(rand.NewPCG(1, 2)), testserver.Straggler(
		testserver.LogNormal(5*time.Millisecond, 2*time.Millisecond), 0.05, 10)
	a, b, both := sketch.New(time.Minute), sketch.New(time.Minute), sketch.New(time.Minute)
	for range 5_000 {
		d := straggler.Draw(r)
		a.Record(now, d, true)
		b.Record(now, 2*d, true)
		both.Record(now, d, true)
		both.Record(now, 2*d, true)
	}
	if math.MaxInt == math.MaxInt32 {
		t.Skip("the mapping's Value is wrong on a 32-bit machine")
	}
	theirs := a.Snapshot(now).Counts().DDSketch()
	if err := theirs.MergeWith(b.Snapshot(now).Counts().DDSketch()); err != nil {
		t.Fatal(err)
	}
	want, back := both.Snapshot(now), sketch.FromDDSketch(theirs)
	if got, _ := back.Count(); float64(got) != theirs.GetCount() || got != want.Total() {
		t.Errorf("%d calls and %v, want %d", got, theirs.GetCount(), want.Total())
	}
	for _, q := range percentiles {
		w, _ := want.Quantile(q)
		if got, _ := back.Quantile(q); got != w {
			t.Errorf("quantile %v is %v, want %v", q, got, w)
		}
		// Their ranks are rounded otherwise, by one bucket at most.
		if got, err := theirs.GetValueAtQuantile(q); err != nil || got < float64(w)*0.979 || got > float64(w)*1.021 {
			t.Errorf("their quantile %v is %v, %v, want %v", q, time.Duration(got), err, w)
		}
	}
}

// TestFromDDSketch_AnyMapping records into a sketch of another accuracy: quantiles are within the
// sum of both.
func TestFromDDSketch_AnyMapping(t *testing.T) {
	theirs, err := ddsketch.NewDefaultDDSketch(0.02)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		_ = theirs.Add(float64(time.Duration(i+1) * time.Millisecond))
	}
	d := sketch.FromDDSketch(theirs)
	for _, q := range percentiles {
		want := time.Duration(q*1000+0.5) * time.Millisecond
		if got, ok := d.Quantile(q); !ok || got < want*97/100 || got > want*103/100 {
			t.Errorf("quantile %v is %v, %v, want %v", q, got, ok, want)
		}
	}
	for _, outside := range []float64{-1, 0, 1e30} {
		_ = theirs.Add(outside)
	}
	if n, _ := sketch.FromDDSketch(theirs).Count(); n != 1003 {
		t.Errorf("%d calls, want 1003", n)
	}
}

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
