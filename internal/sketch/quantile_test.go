package sketch_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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
