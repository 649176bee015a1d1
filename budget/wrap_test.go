package budget

import (
	"math"
	"testing"
	"time"
)

// Both sums pass their types' limits, and the target was never hedged meanwhile: nothing is gained or lost.
func TestSumsMayWrap(t *testing.T) {
	const perCall = 4 * token
	for _, start := range []uint64{
		math.MaxUint32 - 500, math.MaxInt64 / perCall, math.MaxUint64 / perCall, math.MaxUint64 - 1000,
	} {
		now := time.Now()
		b := New(400)
		b.calls.Store(start)
		b.gone.Store(int64(start*b.perCall) - b.price)
		for i := range b.marks {
			b.marks[i].Store(uint64(uint32(start)))
		}
		for range 4000 {
			now = now.Add(time.Millisecond)
			b.Earn(now)
			if got := b.Tokens(now); got < 1 || got > 8000 {
				t.Fatalf("from %d: Tokens = %v", start, got)
			}
		}
		if got := b.Tokens(now); got < 7000 {
			t.Errorf("from %d: Tokens = %v, want 7000 to 8000", start, got)
		}
	}
}

// Ten days without a hedge, at 100,000 calls a second and 400%, earn more than the difference of the sums can hold.
func TestUnspentTokensAreForfeited(t *testing.T) {
	now := time.Now()
	b := New(400)
	for range 100 {
		b.calls.Add(1e8) // a thousand seconds' worth between two calls
		now = now.Add(step)
		b.Earn(now)
		if got := b.Tokens(now); got != maxBurst {
			t.Fatalf("Tokens = %v, want %d", got, maxBurst)
		}
	}
}
