package budget_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/budget"
)

// A call comes every 10 µs of the benchmarks' time.
const benchPace = 10 * time.Microsecond

func BenchmarkEarn(b *testing.B) {
	bucket, now := budget.New(10), time.Now()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(benchPace)
		bucket.Earn(now, 1)
	}
}

func BenchmarkEarnParallel(b *testing.B) {
	bucket, start := budget.New(10), time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for now := start; pb.Next(); now = now.Add(benchPace) {
			bucket.Earn(now, 1)
		}
	})
}

// Of the spends one in ten is paid for.
func BenchmarkSpend(b *testing.B) {
	bucket, now := budget.New(10), time.Now()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(benchPace)
		bucket.Earn(now, 1)
		bucket.Spend(now, true, 1)
	}
}

func BenchmarkSpendParallel(b *testing.B) {
	bucket, start := budget.New(10), time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for now := start; pb.Next(); now = now.Add(benchPace) {
			bucket.Earn(now, 1)
			bucket.Spend(now, true, 1)
		}
	})
}
