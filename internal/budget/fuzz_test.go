package budget_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
)

// Whatever the order of times, a bucket pays for no more than was earned and holds between nothing
// and its burst.
func FuzzBucket(f *testing.F) {
	f.Add(10.0, []byte{0, 1, 2, 3, 250, 251, 0, 0, 128, 1, 2})
	f.Add(400.0, []byte{0, 0, 0, 0, 1, 1, 2, 2, 64, 0, 192, 1})
	f.Fuzz(func(t *testing.T, percent float64, events []byte) {
		b := budget.New(percent)
		share := 0.0
		if percent > 0 {
			share = min(percent, 400) / 100
		}
		now, allowed := time.Duration(0), 1.0
		for _, e := range events {
			// Forth and back by up to 31 times 1 ms, or 2^k of that.
			move := time.Duration(e>>3) * time.Millisecond << (2 * (e & 7))
			if now += move; e&7 > 5 {
				now -= 2 * move
			}
			switch e & 3 {
			case 0, 1:
				b.Earn(at(now), 1)
				allowed += share
			case 2:
				if b.Spend(at(now), e&4 == 0, 1) {
					allowed--
				}
			default:
				b.Hedged(e&8 == 0)
				paid := b.SpendSaved(at(now), 1)
				if !paid {
					paid, _ = b.Pay(at(now), e&4 == 0, 1)
				}
				if paid {
					allowed--
				}
			}
			if e == 255 { // the hedge that was just paid for is dropped, if any was
				if b.SpendSaved(at(now), 1) {
					b.Refund(true, 1)
				}
				if b.Spend(at(now), true, 1) {
					b.Refund(false, 1)
				}
			}
			if allowed < -1e-6*float64(len(events)) {
				t.Fatalf("%v more paid for than earned", -allowed)
			}
			if tokens, burst := b.Balance(at(now)).Tokens, b.Balance(at(now)).Burst; !(0 <= tokens && tokens <= burst && burst <= budget.MaxBurst) {
				t.Fatalf("Tokens = %v, Burst = %v", tokens, burst)
			}
			if saved, capacity := b.Balance(at(now)).Saved, b.Balance(at(now)).Capacity; !(0 <= saved && saved <= capacity) {
				t.Fatalf("Saved = %v, Capacity = %v", saved, capacity)
			}
		}
	})
}
