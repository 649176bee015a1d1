package budget_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
)

// A call comes every 10 µs of the benchmarks' time. Of the spends one in ten is paid for.
func benchmark(b *testing.B, parallel bool, each func(*budget.Bucket, time.Time)) {
	const pace = 10 * time.Microsecond
	bucket, start := budget.New(10), time.Now()
	b.ReportAllocs()
	if !parallel {
		for now := start; b.Loop(); now = now.Add(pace) {
			each(bucket, now)
		}
		return
	}
	b.RunParallel(func(pb *testing.PB) {
		for now := start; pb.Next(); now = now.Add(pace) {
			each(bucket, now)
		}
	})
}

func earnOne(b *budget.Bucket, now time.Time) { b.Earn(now, 1) }

func earnAndSpend(b *budget.Bucket, now time.Time) {
	b.Earn(now, 1)
	b.Spend(now, true, 1)
}

func BenchmarkEarn(b *testing.B)          { benchmark(b, false, earnOne) }
func BenchmarkEarnParallel(b *testing.B)  { benchmark(b, true, earnOne) }
func BenchmarkSpend(b *testing.B)         { benchmark(b, false, earnAndSpend) }
func BenchmarkSpendParallel(b *testing.B) { benchmark(b, true, earnAndSpend) }
