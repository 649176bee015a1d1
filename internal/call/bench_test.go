package call_test

import (
	stdatomic "sync/atomic"
	"testing"
	"time"

	"go.uber.org/atomic"
)

// BenchmarkAtomic is what every call reads, as a time.Duration and a bool, beside the same in types of sync/atomic.
func BenchmarkAtomic(b *testing.B) {
	at := time.Second
	b.Run("Duration", func(b *testing.B) {
		var due atomic.Duration
		due.Store(time.Minute)
		for b.Loop() {
			if at > due.Load() {
				b.Fatal("due")
			}
		}
	})
	b.Run("Duration/sync", func(b *testing.B) {
		var due stdatomic.Int64
		due.Store(int64(time.Minute))
		for b.Loop() {
			if int64(at) > due.Load() {
				b.Fatal("due")
			}
		}
	})
	b.Run("Bool", func(b *testing.B) {
		var paused atomic.Bool
		for b.Loop() {
			if paused.Load() {
				b.Fatal("paused")
			}
		}
	})
	b.Run("Bool/sync", func(b *testing.B) {
		var paused stdatomic.Bool
		for b.Loop() {
			if paused.Load() {
				b.Fatal("paused")
			}
		}
	})
}
