package sketch_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// durations returns latencies drawn from a lognormal distribution about 5 ms.
func durations(n int) []time.Duration {
	r := rand.New(rand.NewPCG(1, 2))
	ds := make([]time.Duration, n)
	for i := range ds {
		ds[i] = time.Duration(float64(5*time.Millisecond) * math.Exp(0.4*r.NormFloat64()))
	}
	return ds
}

// Rule 18: at most 30 ns and no allocation. A call comes every 100 µs, so that steps change as they
// do in use.
func BenchmarkObserve(b *testing.B) {
	w, now, ds := sketch.New(30*time.Second), time.Now(), durations(1024)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		now = now.Add(100 * time.Microsecond)
		w.Record(now, ds[i%len(ds)], true)
		i++
	}
}

// A full window: 100,000 calls, a tenth of them cut short.
func BenchmarkSnapshot(b *testing.B) {
	w, ds := sketch.New(30*time.Second), durations(100_000)
	for i, d := range ds {
		now := at(30 * time.Second * time.Duration(i) / time.Duration(len(ds)))
		if i%10 == 0 {
			w.Record(now, d, false)
		} else {
			w.Record(now, d, true)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := w.Snapshot(at(30 * time.Second)).Quantile(0.9); !ok {
			b.Fatal("nothing observed")
		}
	}
}
