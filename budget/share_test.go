package budget_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpchedge/hedge/budget"
	"github.com/grpchedge/hedge/internal/longtest"
)

// TestRule12_AShareThatMoves changes the share before almost every call, by much and by next to nothing. What was paid and what is held is
// never more than each call has earned at the share that was set when it began, and the token of the start.
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
			earned += share * roundedCost(cost)
			for range r.IntN(3) {
				saved := false
				if !b.Spend(at(now), r.IntN(2) == 0, cost) {
					if saved = b.SpendSaved(at(now), cost); !saved {
						continue
					}
				}
				paid += roundedCost(cost)
				b.Hedged(r.IntN(3) > 0)
				if r.IntN(10) == 0 {
					b.Refund(saved, cost)
					paid -= roundedCost(cost)
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

func roundedCost(cost float64) float64 { return min(cost, budget.MaxCost) }

// Callers on many goroutines pay from a bucket whose share they move all the time. They never get more than the largest share.
func TestRule12_AShareThatMovesConcurrently(t *testing.T) {
	const callers, largest = 8, 0.10
	calls := longtest.Size(10_000, 100_000)
	b := budget.New(100 * largest)
	percents := []float64{10, 2, 9.999999, 0, 10, 0.5}
	var clock, earned, paid atomic.Int64
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for i := range calls {
				now := time.Duration(clock.Add(int64(50*time.Microsecond))) + time.Duration((caller*i)%20)*time.Millisecond
				b.SetPercent(percents[(caller+i)%len(percents)])
				earned.Add(1)
				b.Earn(at(now), 1)
				ok, saved := b.Spend(at(now), i%2 == 0, 1), false
				if !ok {
					saved = b.SpendSaved(at(now), 1)
				}
				switch {
				case !ok && !saved:
				case i%7 == 0:
					b.Refund(saved, 1)
				default:
					b.Hedged(i%3 > 0)
					if n := paid.Add(1); float64(n) > largest*float64(earned.Load())+1 {
						t.Errorf("%d hedges paid for after at most %d calls", n, earned.Load())
						return
					}
				}
			}
		})
	}
	group.Wait()
	if got := paid.Load(); got < int64(callers*calls/200) {
		t.Errorf("%d hedges of %d calls: the test has come to nothing", got, callers*calls)
	}
}

// What a bucket holds when its share is lowered, or becomes 0, pays as before for two seconds. Then one token is left.
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
