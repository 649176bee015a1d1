package sketch_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver"
)

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
