package budget_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
)

// The price follows what hedges spend and ask for: it rises until the budget holds, and falls to
// the least price while tokens are left. A hedge that was not sent spends nothing, and a hedge that
// a server turned away a tenth.
func TestMarket_PriceFollowsSpending(t *testing.T) {
	for name, tc := range map[string]struct {
		share      float64 // of calls that ask for a hedge
		after      func(b *budget.Bucket, saved bool)
		least, top float64
	}{
		"nothing":             {0, nil, budget.LeastPrice, budget.LeastPrice},
		"half of the budget":  {.05, nil, budget.LeastPrice, budget.LeastPrice},
		"twice the budget":    {.2, nil, 2, 20},
		"an outage":           {1, nil, 2, 20},
		"all are refunded":    {.2, func(b *budget.Bucket, saved bool) { b.Refund(saved, false, 1) }, budget.LeastPrice, budget.LeastPrice},
		"all are turned away": {.2, func(b *budget.Bucket, saved bool) { b.Refund(saved, true, 1) }, budget.LeastPrice, budget.LeastPrice},
	} {
		b, now, asked := budget.New(10), time.Duration(0), 0.0
		run := func(length time.Duration, share float64) float64 {
			for end := now + length; now < end; now += 2 * time.Millisecond {
				b.Earn(at(now), 1, 0)
				for asked += share; asked >= 1; asked-- {
					if paid, saved := b.Pay(at(now), false, 1); paid && tc.after != nil {
						tc.after(b, saved)
					} else if paid {
						b.Hedged(true)
					}
				}
				if now%time.Second == 0 {
					b.Market(at(now)) // as each choice does
				}
			}
			return b.Market(at(now)).Price
		}
		run(10*time.Second, 0)
		if price := run(30*time.Second, tc.share); price < tc.least || price > tc.top {
			t.Errorf("%s: the price is %.2f, want %v to %v", name, price, tc.least, tc.top)
		}
		if price := run(45*time.Second, 0); price != budget.LeastPrice {
			t.Errorf("%s: the price is %.2f three quarters of a minute later", name, price)
		}
	}
}

// Usable leaves room for chance where a bucket is small.
func TestUsable(t *testing.T) {
	for capacity, want := range map[float64]float64{0: 0, 1: .5, 4: .8, 1000: .95} {
		if got := budget.Usable(capacity); !near(got, want, 1e-9) {
			t.Errorf("Usable(%v) = %v, want %v", capacity, got, want)
		}
	}
}
