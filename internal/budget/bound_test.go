package budget_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
)

// intervals checks the bound of package budget over all intervals at once: in any interval, hedges
// cost at most the share of its calls' cost, the burst at its start, the costliest hedge twice, and
// the costliest hedge for each hedge that wins.
//
// Let f be the sum of paid − earned − costliest·wins since the beginning. The bound is then f(end)
// ≤ f(start) + burst(start) + 2·costliest, so the least f + burst of all starts is enough. Hedges
// that the burst pays for, without savings and wins, cost at most the share and the burst. Savings
// pay for at most two hedges, and one for each win. Intervals that begin before the bucket last
// borrowed have the burst of that time in addition.
type intervals struct {
	share, costliest  float64 // the largest share, and the costliest hedge, of the run
	calls             []costly
	f, least, debt    float64
	beforeDebt        float64 // the least f + burst of starts before the last debt
	burstF            float64 // f of the hedges that the burst paid for
	burstLeast        float64
	saved, savedLeast int // hedges from savings − wins

	behind time.Duration // by which the bucket's clock can be behind, so that shares live longer
}

type costly struct {
	at   time.Duration
	cost float64
}

func newIntervals(share, costliest float64) *intervals {
	most := math.Inf(1)
	return &intervals{share: share, costliest: costliest, least: most, beforeDebt: most, burstLeast: most}
}

// burst is the sum of the shares that live. It is at least the cost of the costliest call of the
// minute before, or 1 if no call of half a minute had a cost.
func (b *intervals) burst(now time.Duration) float64 {
	for len(b.calls) > 0 && b.calls[0].at < now-65*time.Second {
		b.calls = b.calls[1:]
	}
	earned, costliest, recent := 0.0, 0.0, false
	for _, c := range b.calls {
		if c.at >= now-2*time.Second-b.behind {
			earned += b.share * c.cost
		}
		if c.at >= now-time.Minute {
			costliest = max(costliest, c.cost)
		}
		recent = recent || c.cost > 0 && c.at > now-30*time.Second
	}
	if !recent {
		costliest = max(costliest, 1)
	}
	return max(earned, costliest)
}

func (b *intervals) call(now time.Duration, cost float64) {
	burst := b.burst(now) // an interval may begin here
	b.least, b.burstLeast = min(b.least, b.f+burst), min(b.burstLeast, b.burstF+burst)
	b.calls = append(b.calls, costly{now, cost})
	b.f -= b.share * cost
	b.burstF -= b.share * cost
}

// pay returns the excess over the bounds.
func (b *intervals) pay(saved bool, cost float64) (over float64) {
	b.f += cost
	over = max(b.f-b.least, b.f-b.beforeDebt-b.debt) - 2*b.costliest
	if saved {
		b.saved++
		return max(over, float64(b.saved-b.savedLeast-2))
	}
	b.burstF += cost
	return max(over, b.burstF-b.burstLeast)
}

// owe is pay for an attempt that the bucket borrows for.
func (b *intervals) owe(now time.Duration, cost float64) (over float64) {
	b.f += cost
	b.debt, b.beforeDebt, b.least = b.burst(now), min(b.beforeDebt, b.least), math.Inf(1)
	return b.f - b.beforeDebt - b.debt - 2*b.costliest
}

func (b *intervals) win() {
	b.f -= b.costliest
	b.saved--
	b.savedLeast = min(b.savedLeast, b.saved)
}

// TestRule12_InAnyIntervalWithCosts draws traffic of all rates, with pauses, costs, clocks that
// differ, hedges that win and lose, are dropped or turned away, calls that forfeit their share,
// attempts that the bucket borrows for, and shares that change by much or by next to nothing.
// Payments and balance together never exceed the earnings and the first token.
func TestRule12_InAnyIntervalWithCosts(t *testing.T) {
	seeds := longtest.Size(120, 1_000)
	if testing.Short() {
		seeds = 15
	}
	menus := [][]float64{
		{1}, {1, 1, 1, 100}, {0.1, 1, 7, 0}, {1, 2.5, 30, math.Inf(1), math.NaN(), -5}, {3}, {0.03}, {0.03, 1e-6, 0.031, 1},
	}
	paid, owed := 0.0, 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 17))
		menu := menus[r.IntN(len(menus))]
		costliest := 0.0
		for _, cost := range menu {
			costliest = max(costliest, priceOf(cost))
		}
		shares := []float64{[]float64{0.01, 0.10, 0.5, 4}[r.IntN(4)]}
		if r.IntN(3) == 0 {
			shares = append(shares, 0, shares[0]/3, shares[0]*(1-1e-12))
		}
		run := boundRun{
			bound: newIntervals(shares[0], costliest), bucket: budget.New(100 * shares[0]), r: r,
			menu: menu, shares: shares, share: shares[0], earned: 1,
			odd: []float64{0, 300}[r.IntN(2)], away: []float64{0, 0, .3, 1}[r.IntN(4)],
			ahead: []time.Duration{0, 0, 200 * time.Millisecond}[r.IntN(3)],
		}
		run.bound.behind = run.ahead
		for range 2000 {
			run.step()
			if run.over > 1e-6 {
				t.Fatalf("seed %d, %v: %v more than the bound", seed, run.now, run.over)
			}
			held := run.bucket.Balance(at(run.now))
			if over := run.paid + held.Tokens + held.Saved - run.earned; over > 1e-3 {
				t.Fatalf("seed %d, %v: %v more than was earned", seed, run.now, over)
			}
		}
		paid, owed = paid+run.paid, owed+run.owed
	}
	if paid == 0 || owed == 0 {
		t.Errorf("%v paid, %d owed: the test checked nothing", paid, owed)
	}
}

// boundRun is one bucket and its traffic.
type boundRun struct {
	bound      *intervals
	bucket     *budget.Bucket
	r          *rand.Rand
	menu       []float64 // costs
	shares     []float64
	share      float64 // in force
	now, ahead time.Duration
	odd        float64 // the cost of a call in 500, which is not slow; 0: none
	rate, wins float64 // calls per second, and the share of hedges that win
	away       float64 // the share of hedges that servers turn away
	over       float64
	paid       float64 // without what was borrowed
	earned     float64
	owed       int
}

func (run *boundRun) step() {
	r := run.r
	if run.rate == 0 || r.IntN(200) == 0 { // another phase
		run.rate, run.wins = math.Pow(10, r.Float64()*4-0.5), []float64{0, 0.3, 0.9, 1}[r.IntN(4)]
		run.now += time.Duration(r.IntN(3)) * time.Duration(r.ExpFloat64()*float64(20*time.Second))
	}
	run.now += time.Duration(r.ExpFloat64() / run.rate * float64(time.Second))
	if len(run.shares) > 1 && r.IntN(20) == 0 {
		run.share = run.shares[r.IntN(len(run.shares))]
		run.bucket.SetPercent(100 * run.share)
	}
	now := at(run.now - time.Duration(r.Float64()*float64(run.ahead))) // another goroutine was faster
	cost := run.menu[r.IntN(len(run.menu))]
	odd := run.odd > 0 && r.IntN(500) == 0
	if odd {
		cost = run.odd
	}
	run.bound.call(run.now, priceOf(cost))
	run.bucket.Earn(now, cost)
	run.earned += run.share * priceOf(cost)
	if odd {
		return
	}
	for range r.IntN(3) {
		paid, saved := run.bucket.Pay(now, float64(r.IntN(2)), cost)
		price := priceOf(cost)
		switch {
		case !paid && r.IntN(20) == 0:
			run.bucket.Forfeit(cost)
			return
		case !paid && r.IntN(4) == 0 && run.bucket.Borrow(now, cost):
			run.owed++
			run.over = max(run.over, run.bound.owe(run.now, price))
			return
		case !paid:
			return
		case r.IntN(10) == 0: // dropped
			run.bucket.Refund(saved, false, cost)
			continue
		case run.away > 0 && r.Float64() < run.away: // its server turned it away, and it costs a tenth
			run.bucket.Refund(saved, true, cost)
			run.over = max(run.over, run.bound.pay(saved, price/10))
			run.paid += price / 10
			continue
		}
		run.paid += price
		run.over = max(run.over, run.bound.pay(saved, price))
		won := r.Float64() < run.wins
		run.bucket.Hedged(won)
		if won {
			run.bound.win()
		}
	}
}

// priceOf is the cost that is counted for a cost.
func priceOf(cost float64) float64 {
	if !budget.IsCost(cost) {
		return 1
	}
	return cost
}

// TestRule12_NoSavingsInAnOutage hedges every call from one moment on, and no hedge wins. The bound
// holds at every call, and nearly all that it allows is paid.
func TestRule12_NoSavingsInAnOutage(t *testing.T) {
	for _, tc := range []struct {
		rate    int // calls per second
		cost    float64
		percent float64
	}{
		{1, 1, 10}, {50, 1, 10}, {1000, 1, 10}, {100, 5, 10}, {100, 0.03, 10}, {1, 1, 50}, {10, 1, 0.5}, {1000, 1, 0.5},
		{1000, 1, 50},
	} {
		b, pause, share := budget.New(tc.percent), time.Second/time.Duration(tc.rate), tc.percent/100
		now := time.Duration(0)
		for ; now < time.Minute; now += pause {
			b.Earn(at(now), tc.cost)
		}
		win(b)
		burst, calls, hedges := b.Balance(at(now)).Burst, 0.0, 0.0
		for ; now < 2*time.Minute; now += pause {
			b.Earn(at(now), tc.cost)
			calls += tc.cost
			if paid, _ := b.Pay(at(now), 0, tc.cost); paid {
				hedges += tc.cost
			}
			if now > time.Minute+time.Second { // a hedged call takes a second
				b.Hedged(false)
			}
			if most := burst + share*calls + 2*tc.cost; hedges > most+1e-6 {
				t.Fatalf("%+v: hedges of %v in calls of %v, with a burst of %v", tc, hedges, calls, burst)
			}
		}
		if least := 0.93 * (burst + share*calls + 2*tc.cost); hedges < least && hedges < share*calls+2*tc.cost {
			t.Errorf("%+v: hedges of %v in calls of %v, want %v", tc, hedges, calls, least)
		}
	}
}
