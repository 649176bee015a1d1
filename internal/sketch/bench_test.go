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
	for i := 0; b.Loop(); i++ {
		now = now.Add(100 * time.Microsecond)
		w.Record(now, ds[i%len(ds)], true)
	}
}
