package sketch_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver"
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

// Rule 18: at most 30 ns and no allocation. A call comes every 100 µs, so that steps change as they do in use.
func BenchmarkObserve(b *testing.B) {
	w, now, ds := sketch.New(30*time.Second), time.Now(), durations(1024)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		now = now.Add(100 * time.Microsecond)
		w.Observe(now, ds[i%len(ds)])
		i++
	}
}

// A full window: 100,000 calls, a tenth of them cut short.
func BenchmarkSnapshot(b *testing.B) {
	w, ds := sketch.New(30*time.Second), durations(100_000)
	for i, d := range ds {
		now := at(30 * time.Second * time.Duration(i) / time.Duration(len(ds)))
		if i%10 == 0 {
			w.ObserveLonger(now, d)
		} else {
			w.Observe(now, d)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := w.Snapshot(at(30 * time.Second)).Quantile(0.9); !ok {
			b.Fatal("nothing observed")
		}
	}
}

// BenchmarkWindowMemory is what a window holds: new, with one latency, and full, with 100,000 latencies about 5 ms, of which
// one in twenty takes ten times as long, and a tenth cut short.
func BenchmarkWindowMemory(b *testing.B) {
	ds := durations(100_000)
	for _, bc := range []struct {
		name string
		fill func(w *sketch.Window)
	}{
		{"new", func(*sketch.Window) {}},
		{"one", func(w *sketch.Window) { w.Observe(at(0), ds[0]) }},
		{"full", func(w *sketch.Window) {
			for i, d := range ds {
				now := at(30 * time.Second * time.Duration(i) / time.Duration(len(ds)))
				if i%20 == 0 {
					d *= 10
				}
				if i%10 == 0 {
					w.ObserveLonger(now, d)
				} else {
					w.Observe(now, d)
				}
			}
		}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			var windows [10]*sketch.Window // for the heap grows by other things too
			var bytes float64
			for b.Loop() {
				windows = [10]*sketch.Window{}
				before := testserver.Heap()
				for i := range windows {
					windows[i] = sketch.New(30 * time.Second)
					bc.fill(windows[i])
				}
				bytes = float64(testserver.Heap()) - float64(before)
				runtime.KeepAlive(&windows)
			}
			b.ReportMetric(bytes/float64(len(windows)), "bytes/window")
			b.ReportMetric(0, "ns/op")
		})
	}
}
