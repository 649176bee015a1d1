package budget

import (
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
)

// Both sums pass their types' limits, and the target was never hedged meanwhile: nothing is gained or lost.
func TestSumsMayWrap(t *testing.T) {
	const perUnit = 4 * token / unitsPerCall
	for _, start := range []uint64{
		math.MaxUint32 - 500, math.MaxInt64 / perUnit, math.MaxUint64 / perUnit, math.MaxUint64 - 1000,
	} {
		now := time.Now()
		b := New(400)
		b.units.Store(start)
		b.gone.Store(int64(start*perUnit) - token)
		for i := range b.marks {
			b.marks[i].Store(uint64(uint32(start)))
		}
		for range 4000 {
			now = now.Add(time.Millisecond)
			b.Earn(now, 1)
			if got := b.Balance(now).Tokens; got < 1 || got > 8000 {
				t.Fatalf("from %d: Tokens = %v", start, got)
			}
		}
		if got := b.Balance(now).Tokens; got < 7000 {
			t.Errorf("from %d: Tokens = %v, want 7000 to 8000", start, got)
		}
	}
}

// Three days without a hedge, at 100,000 calls a second and 400%, earn more than the difference of the sums can hold.
func TestUnspentTokensAreForfeited(t *testing.T) {
	longtest.Computation(t)
	now := time.Now()
	b := New(400)
	for range 1_000_000 {
		b.units.Add(25_000 * unitsPerCall) // a step's worth between two calls
		now = now.Add(step)
		b.Earn(now, 1)
		if got := b.Balance(now).Tokens; got != maxBurst {
			t.Fatalf("Tokens = %v, want %d", got, maxBurst)
		}
	}
}
