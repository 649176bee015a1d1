package sketch_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/DataDog/sketches-go/ddsketch"

	"github.com/grpchedge/hedge/internal/longtest"
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

// Remission of leukaemia under 6-mercaptopurine, in weeks (Freireich et al., Blood 1963), the
// textbooks' example of the product-limit estimate. The patient lost to sight in week 6 and the one
// in week 10 were so after the events of these weeks, as the textbooks take it.
func TestRule13_TextbookExample(t *testing.T) {
	weeks := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	w := sketch.New(time.Minute)
	for _, n := range []float64{6, 6, 6, 7, 10, 13, 16, 22, 23} {
		w.Record(at(0), weeks(n), true)
	}
	for _, n := range []float64{6.2, 9, 10.3, 11, 17, 19, 20, 25, 32, 32, 34, 35} {
		w.Record(at(0), weeks(n), false)
	}
	d := w.Snapshot(at(0))
	if o, b := d.Count(); o != 9 || b != 12 {
		t.Errorf("Count = %d, %d, want 9, 12", o, b)
	}
	published := []struct{ week, survival float64 }{
		{6, 0.8571}, {7, 0.8067}, {10, 0.7529}, {13, 0.6902}, {16, 0.6275}, {22, 0.5378}, {23, 0.4482}, {35, 0},
	}
	for i, p := range published[:7] {
		for q, want := range map[float64]float64{
			1 - p.survival - 0.0001: p.week,
			1 - p.survival + 0.0001: published[i+1].week, // at last the largest bound
		} {
			if got := quantile(t, d, q); off(got, weeks(want)) > 0.0100001 {
				t.Errorf("Quantile(%.4f) = %v, want week %v", q, got, want)
			}
		}
	}
}

func TestRule13_LowerBoundsAreNotLatencies(t *testing.T) {
	type records map[time.Duration][2]int // latency → answered, cut short
	const ms = time.Millisecond
	for _, tt := range []struct {
		name    string
		records records
		q       float64
		want    time.Duration
	}{
		{name: "cut short below all answers", records: records{1 * ms: {0, 90}, 10 * ms: {5, 0}, 20 * ms: {5, 0}}, q: 0.5,
			want: 10 * ms},
		{name: "cut short above all answers", records: records{10 * ms: {80, 0}, 30 * ms: {0, 20}}, q: 0.5, want: 10 * ms},
		{name: "beyond them: the largest bound", records: records{10 * ms: {80, 0}, 20 * ms: {0, 10}, 30 * ms: {0, 10}},
			q: 0.9, want: 30 * ms},
		{name: "at the very edge of them", records: records{10 * ms: {90, 0}, 30 * ms: {0, 10}}, q: 0.9, want: 10 * ms},
		// Half of the calls pass 20 ms, and the 25 cut short there share the fate of the other 25:
		// S = 0.5·5/25 past 30 ms.
		{name: "amid answers", records: records{10 * ms: {50, 0}, 20 * ms: {0, 25}, 30 * ms: {20, 0}, 40 * ms: {5, 0}},
			q: 0.89, want: 30 * ms},
		{name: "amid answers, beyond",
			records: records{10 * ms: {50, 0}, 20 * ms: {0, 25}, 30 * ms: {20, 0}, 40 * ms: {5, 0}}, q: 0.91, want: 40 * ms},
		// Of 100 at risk, 20 cut short count half: S = 1 − 30/90. Without them it would be 1 −
		// 30/80, with all 1 − 30/100.
		{name: "one bucket with answers", records: records{10 * ms: {30, 20}, 20 * ms: {50, 0}}, q: 0.333, want: 10 * ms},
		{name: "one bucket, beyond", records: records{10 * ms: {30, 20}, 20 * ms: {50, 0}}, q: 0.334, want: 20 * ms},
		{name: "the last bucket holds both", records: records{10 * ms: {10, 0}, 20 * ms: {10, 10}}, q: 0.99, want: 20 * ms},
	} {
		w := sketch.New(time.Minute)
		for d, n := range tt.records {
			for range n[0] {
				w.Record(at(0), d, true)
			}
			for range n[1] {
				w.Record(at(0), d, false)
			}
		}
		if got := quantile(t, w.Snapshot(at(0)), tt.q); off(got, tt.want) > 0.0100001 {
			t.Errorf("%s: Quantile(%v) = %v, want %v", tt.name, tt.q, got, tt.want)
		}
	}
}

// A primary still unanswered at the delay is hedged, and cut short when its hedge answers first.
// Whatever share of the calls that is, the distribution learned from the primaries is the unhedged
// one.
//
// So many calls are needed for p99, as hardly any of the slowest are seen to their end, and of a
// straggler least of all.
func TestRule13_HedgingDoesNotBiasTheEstimate(t *testing.T) {
	longtest.Simulation(t)
	type traffic struct {
		name         string
		distribution testserver.Distribution
		calls        int
	}
	for _, tt := range longtest.First(1, []traffic{
		{"lognormal", testserver.LogNormal(5*time.Millisecond, 5*time.Millisecond), 400_000},
		{"bimodal", either(testserver.LogNormal(15*time.Millisecond, 3*time.Millisecond), 0.2,
			testserver.LogNormal(200*time.Millisecond, 25*time.Millisecond)), 400_000},
		{"straggler", testserver.Straggler(testserver.LogNormal(5*time.Millisecond, 2*time.Millisecond), 0.05, 10), 800_000},
	}) {
		r := rand.New(rand.NewPCG(1, 8))
		truth := make([]time.Duration, tt.calls)
		for i := range truth {
			truth[i] = tt.distribution.Draw(r)
		}
		sorted := slices.Clone(truth)
		slices.Sort(sorted)
		rank := func(q float64) time.Duration { return sorted[int(q*float64(tt.calls))] }

		for _, share := range []float64{0.05, 0.20, 0.50} {
			t.Run(fmt.Sprintf("%s, %v of calls hedged", tt.name, share), func(t *testing.T) {
				r := rand.New(rand.NewPCG(2, 8))
				delay := rank(1 - share)
				w, answered := sketch.New(time.Minute), sketch.New(time.Minute)
				for i, primary := range truth {
					if hedge := delay + tt.distribution.Draw(r); hedge < primary {
						w.Record(at(0), hedge, false)
						continue
					}
					w.Record(at(0), primary, true)
					if i%10 == 0 {
						answered.Record(at(0), primary, true)
					}
				}
				d := w.Snapshot(at(0))
				for _, q := range []float64{0.5, 0.75, 0.9, 0.95, 0.99} {
					got, want := quantile(t, d, q), rank(q)
					// Between the modes of a distribution hardly any call ends: there 3% in latency
					// is a thousandth of the calls and less, which is chance.
					shorter, _ := slices.BinarySearch(sorted, got)
					if off(got, want) > 0.03 && math.Abs(float64(shorter)/float64(tt.calls)-q) > 0.001 {
						t.Errorf("p%v = %v, want %v within 3%%", 100*q, got, want)
					}
				}
				if p99 := quantile(t, answered.Snapshot(at(0)), 0.99); off(p99, rank(0.99)) < 0.03 {
					t.Errorf("p99 of answered calls alone is %v: this traffic tests nothing", p99)
				}
			})
		}
	}
}

// TestLongest: the longest latency is of an answered call, however long another one was cut short after.
func TestLongest(t *testing.T) {
	w := sketch.New(time.Minute)
	if d := w.Snapshot(at(0)).Longest(); d != 0 {
		t.Errorf("the longest latency of no call is %v", d)
	}
	w.Record(at(0), 10*time.Millisecond, true)
	w.Record(at(0), 30*time.Millisecond, true)
	w.Record(at(0), time.Hour, false)
	if d := w.Snapshot(at(0)).Longest(); d < 29*time.Millisecond || d > 31*time.Millisecond {
		t.Errorf("the longest latency is %v, want 30 ms", d)
	}
}

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
