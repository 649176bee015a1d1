package hedge_test

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
)

func nothing(context.Context) (struct{}, error) { return struct{}{}, nil }

// BenchmarkDo is a call that needs no hedge, of a function that does nothing.
func BenchmarkDo(b *testing.B) {
	s, err := hedge.New(hedge.WithAllMethods(), hedge.WithMinDelay(time.Second))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := hedge.Do(b.Context(), s, "bench", "/pkg.Svc/Get", nothing); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMemory is what a scheduler keeps: of each target with one method, and of each further method. Every method
// has had twenty calls of one latency; what more latencies cost is in internal/latency, BenchmarkWindowMemory.
func BenchmarkMemory(b *testing.B) {
	const entries = 200 // below the cap on the methods of a target
	for _, bc := range []struct {
		name           string
		target, method func(i int) string
	}{
		{"target", strconv.Itoa, func(int) string { return "/pkg.Svc/Get" }},
		{"method", func(int) string { return "bench" }, func(i int) string { return "/pkg.Svc/Get" + strconv.Itoa(i) }},
	} {
		b.Run(bc.name, func(b *testing.B) {
			var bytes float64
			for b.Loop() {
				before := testserver.Heap()
				s, err := hedge.New(hedge.WithAllMethods())
				if err != nil {
					b.Fatal(err)
				}
				for i := range entries {
					for range 20 {
						if _, err := hedge.Do(b.Context(), s, bc.target(i), bc.method(i), nothing); err != nil {
							b.Fatal(err)
						}
					}
				}
				bytes = float64(testserver.Heap()) - float64(before)
				runtime.KeepAlive(s)
			}
			b.ReportMetric(bytes/entries, "bytes/"+bc.name)
			b.ReportMetric(0, "ns/op") // mostly the garbage collector's
		})
	}
}
