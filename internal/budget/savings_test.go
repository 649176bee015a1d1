package budget_test

import (
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// win lets savings pay for two hedges.
func win(b *budget.Bucket) {
	b.Hedged(true)
	b.Hedged(true)
}

// saved is a bucket after ten seconds of unhedged calls, rate per second, at 10%.
func saved(rate int) *budget.Bucket {
	b := budget.New(10)
	earn(b, 10*rate, 0, 10*time.Second)
	return b
}

const afterTen = 10 * time.Second

// TestSavings_Fill: tokens beyond the burst are saved, up to four bursts. A silent client keeps
// five in all.
func TestSavings_Fill(t *testing.T) {
	for _, tc := range []struct {
		name              string
		calls             int
		within, at        time.Duration
		tokens, saved, of float64
		paid              int // if each hedge wins
	}{
		{name: "no call", tokens: 1, of: 5, paid: 1},
		{name: "9 calls in ten seconds", calls: 9, within: afterTen, at: afterTen, tokens: 1, saved: 0.9, of: 5, paid: 1},
		{name: "a call per second", calls: 60, within: time.Minute, at: time.Minute, tokens: 1, saved: 4, of: 5, paid: 5},
		{name: "1000/s", calls: 10_000, within: afterTen, at: afterTen - 1, tokens: 200,
			saved: 700, of: 1000, paid: 900}, // four bursts of the seven steps before
		{name: "1000/s, an hour ago", calls: 10_000, within: afterTen, at: time.Hour, tokens: 1, saved: 4, of: 5, paid: 5},
	} {
		b := budget.New(10)
		earn(b, tc.calls, 0, tc.within)
		got := b.Balance(at(tc.at))
		if !near(got.Tokens, tc.tokens, 1e-6) || !near(got.Saved, tc.saved, 1e-6) || !near(got.Capacity, tc.of, 1e-6) {
			t.Errorf("%s: %+v, want %v tokens and %v saved of %v", tc.name, got, tc.tokens, tc.saved, tc.of)
		}
		win(b)
		paid := drain(b, tc.at)
		for b.SpendSaved(at(tc.at)) {
			b.Hedged(true)
			paid++
		}
		if paid != tc.paid {
			t.Errorf("%s: paid for %d hedges, want %d", tc.name, paid, tc.paid)
		}
	}
}

// TestRule12_StalledHedges has a third of the hedges go to the backend that stalls, and none of
// them ends. The burst and the savings pay in turn, so that both are used.
func TestRule12_StalledHedges(t *testing.T) {
	b := saved(1000)
	win(b)
	held, hedges := b.Balance(at(afterTen)), 0
	for i := 0; ; i++ {
		if paid, _ := b.Pay(at(afterTen), 0); !paid {
			break
		}
		hedges++
		if i%3 > 0 {
			b.Hedged(true)
		}
	}
	if n := float64(hedges); n < 1.9*held.Burst || n > held.Burst+held.Saved {
		t.Errorf("%d hedges with %+v", hedges, held)
	}
}

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

// drawn is lognormal around median, and times longer for a share of attempts.
func drawn(id uint64, attempt int, median time.Duration, sigma, share, times float64) time.Duration {
	r := simulation.Generator(1, id, attempt)
	d := float64(median) * math.Exp(sigma*r.NormFloat64())
	if r.Float64() < share {
		d *= times
	}
	return time.Duration(d)
}

// TestAuto_AGreedyMethodStarvesNone has one modest method among greedy methods. A greedy method's
// hedges gain little each, and it wants more of them than the budget pays for. The modest method has
// few slow calls: 3% of attempts, or those to a backend that stalls for a second each minute. All
// methods pay one price, so its hedges are sent.
func TestAuto_AGreedyMethodStarvesNone(t *testing.T) {
	longtest.Simulation(t)
	for _, tc := range longtest.First(3, []struct {
		rate    float64
		methods uint64
		stalls  bool
	}{
		{5, 2, false}, {5, 12, false}, {100, 12, true},
		{5, 2, true}, {5, 12, true}, {100, 2, false}, {100, 2, true}, {100, 12, false},
		{1000, 2, false}, {1000, 2, true}, {1000, 12, false}, {1000, 12, true},
	}) {
		run := func(options ...hedge.Option) (late, of int, load float64) {
			calls, _ := simulation.Client{
				Rate: tc.rate, Calls: max(2_500*int(tc.methods), int(tc.rate)*120), Methods: int(tc.methods),
				Seed: 3, Options: options,
				Latency: func(id uint64, attempt int, at time.Duration) time.Duration {
					switch stall := at % time.Minute; {
					case id%tc.methods != 0:
						return drawn(id, attempt, 10*time.Millisecond, .8, 0, 0)
					case !tc.stalls:
						return drawn(id, attempt, 5*time.Millisecond, .3, .03, 60)
					case stall < time.Second && (id/tc.methods+uint64(attempt))%3 == 0:
						return time.Second - stall
					}
					return drawn(id, attempt, 5*time.Millisecond, .3, 0, 0)
				},
			}.Run(t)
			for _, c := range calls[len(calls)/3:] {
				if c.ID%tc.methods == 0 {
					of++
					if c.Took > 100*time.Millisecond {
						late++
					}
				}
			}
			return late, of, calls.Load()
		}
		plain, of, _ := run(hedge.WithMaxHedges(0))
		hedged, _, load := run()
		t.Logf("%+v: %d of %d modest calls late, %d with hedges, load %.1f%%", tc, plain, of, hedged, 100*load)
		if hedged > plain/2+3 || load > .10 {
			t.Errorf("%+v: %d late calls with hedges, %d without, load %.3f", tc, hedged, plain, load)
		}
	}
}
