package hedge_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

func nothing(context.Context) (struct{}, error) { return struct{}{}, nil }

// BenchmarkDo is a call that needs no hedge, of a function that does nothing.
func BenchmarkDo(b *testing.B) {
	s := hedgetest.All(b, hedge.WithMinDelay(time.Second))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := hedge.Do(b.Context(), s, "bench", "/pkg.Svc/Get", nothing); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNewContext is the same with options in its context, and in one so many contexts further up. Once NewContext was
// used, every call pays for looking, the ones without options the most.
func BenchmarkNewContext(b *testing.B) {
	type key int
	s := hedgetest.All(b, hedge.WithMinDelay(time.Second))
	for _, depth := range []int{0, 10, 100} {
		for name, ctx := range map[string]context.Context{"with": hedge.NewContext(b.Context(), hedge.After(time.Second)), "without": b.Context()} {
			for i := range depth {
				ctx = context.WithValue(ctx, key(i), i)
			}
			b.Run(fmt.Sprintf("%s/depth=%d", name, depth), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c := hcall.Begin(registry.Of(s), ctx, "bench", "/pkg.Svc/Get", nil)
					c.End(hcall.End{})
				}
			})
		}
	}
}

// BenchmarkBegin is what the scheduler does for a call, and what it does for one of a method that is new while memory is full.
func BenchmarkBegin(b *testing.B) {
	for _, bc := range []struct {
		name   string
		method func(i int) string
	}{
		{"known", func(int) string { return "/pkg.Svc/Get" }},
		{"new", func(i int) string { return "/pkg.Svc/Get" + strconv.Itoa(i) }},
	} {
		b.Run(bc.name, func(b *testing.B) {
			s := hedgetest.All(b, hedge.WithMinDelay(time.Second), hedge.WithMaxMemory(1<<20))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				c := hcall.Begin(registry.Of(s), b.Context(), "bench", bc.method(i), nil)
				c.End(hcall.End{})
			}
		})
	}
}

// BenchmarkMemory is what a scheduler keeps: of each target with one method, and of each further method. Every method
// has had twenty calls of one latency; what more latencies cost is in sketch, BenchmarkWindowMemory.
func BenchmarkMemory(b *testing.B) {
	const entries = 200
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
				s := hedgetest.All(b)
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
