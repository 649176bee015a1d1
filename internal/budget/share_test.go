package budget_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
)

// TestRule12_AShareThatMoves changes the share before almost every call, by much and by next to
// nothing. What was paid and what is held is never more than each call has earned at the share that
// was set when it began, and the token of the start.
func TestRule12_AShareThatMoves(t *testing.T) {
	for seed := range uint64(longtest.Size(3, 100)) {
		r := rand.New(rand.NewPCG(seed, 4))
		b := budget.New(10)
		share, earned, paid := 0.10, 1.0, 0.0
		now := time.Duration(0)
		for i := range 10_000 {
			now += time.Duration(r.ExpFloat64() * float64(time.Millisecond))
			switch r.IntN(4) {
			case 0:
				share = []float64{0, 0.001, 0.02, 0.10, 4}[r.IntN(5)]
				b.SetPercent(100 * share)
			case 1:
				share += 1e-12 * share
				b.SetPercent(100 * share)
			}
			cost := []float64{1, 1, 0.3, 7}[r.IntN(4)]
			b.Earn(at(now), cost)
			earned += share * cost
			for range r.IntN(3) {
				saved := false
				if !b.Spend(at(now), r.IntN(2) == 0, cost) {
					if saved = b.SpendSaved(at(now), cost); !saved {
						continue
					}
				}
				paid += cost
				b.Hedged(r.IntN(3) > 0)
				if r.IntN(10) == 0 {
					b.Refund(saved, cost)
					paid -= cost
				}
			}
			rounding := 1e-6 + 1e-7*float64(i)
			if over := paid + b.Balance(at(now)).Tokens + b.Balance(at(now)).Saved - earned; over > rounding {
				t.Fatalf("seed %d, call %d: %v tokens more than were earned", seed, i, over)
			}
		}
		if paid < 50 {
			t.Errorf("seed %d: %v paid: the test has come to nothing", seed, paid)
		}
	}
}

// What a bucket holds when its share is lowered, or becomes 0, pays as before for two seconds. Then
// one token is left.
func TestSetPercent_WhatIsHeldPays(t *testing.T) {
	for _, percents := range [][]float64{{100}, {0}, {10}, {0, 10}, {10, 0}} {
		for _, tc := range []struct {
			after time.Duration
			least int // hedges
			most  int
		}{{0, 20, 21}, {1500 * time.Millisecond, 20, 21}, {3 * time.Second, 1, 1}} {
			b := budget.New(100)
			for range 20 {
				b.Earn(at(0), 1)
			}
			for _, p := range percents {
				b.SetPercent(p)
			}
			paid := 0
			for b.Spend(at(tc.after), true, 1) {
				paid++
			}
			if paid < tc.least || paid > tc.most {
				t.Errorf("%v percent, after %v: %d hedges, want %d", percents, tc.after, paid, tc.least)
			}
		}
	}
}
