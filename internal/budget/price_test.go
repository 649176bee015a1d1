package budget_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
)

// The price follows what hedges spend and request: it rises until the budget holds, and falls to
// the least price while tokens are left, in a time that is bounded at each rate. A hedge that was
// not sent spends nothing, and a hedge that a server turned away a tenth.
func TestMarket_PriceFollowsSpending(t *testing.T) {
	given := func(sent bool) func(*budget.Bucket, bool) {
		return func(b *budget.Bucket, saved bool) { b.Refund(saved, sent) }
	}
	for name, tc := range map[string]struct {
		rate       int
		share      float64 // of calls that request a hedge
		after      func(b *budget.Bucket, saved bool)
		least, top float64
		back       time.Duration
	}{
		"nothing":             {rate: 500, least: budget.LeastPrice, top: budget.LeastPrice},
		"half of the budget":  {rate: 500, share: .05, least: budget.LeastPrice, top: budget.LeastPrice},
		"twice the budget":    {rate: 500, share: .2, least: 2, top: 20, back: 45 * time.Second},
		"an outage":           {rate: 500, share: 1, least: 2, top: 20, back: 45 * time.Second},
		"an outage, 50/s":     {rate: 50, share: 1, least: 2, top: 20, back: 45 * time.Second},
		"an outage, 5/s":      {rate: 5, share: 1, least: 1, top: 20, back: 2 * time.Minute},
		"an outage, 1/s":      {rate: 1, share: 1, least: .8, top: 20, back: 9 * time.Minute},
		"all are refunded":    {rate: 500, share: .2, after: given(false), least: budget.LeastPrice, top: budget.LeastPrice},
		"all are turned away": {rate: 500, share: .2, after: given(true), least: budget.LeastPrice, top: budget.LeastPrice},
	} {
		b, now, asked := budget.New(10), time.Duration(0), 0.0
		run := func(length time.Duration, share float64) float64 {
			for end := now + length; now < end; now += time.Second / time.Duration(tc.rate) {
				b.Earn(at(now), 0)
				for asked += share; asked >= 1; asked-- {
					if paid, saved := b.Pay(at(now), 0); paid && tc.after != nil {
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
		if price := run(tc.back, 0); price != budget.LeastPrice {
			t.Errorf("%s: the price is %.2f after %v", name, price, tc.back)
		}
	}
}
