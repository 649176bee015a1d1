package budget_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
)

// intervals checks the bound of package budget over all intervals at once: what hedges cost in an
// interval is at most the share of what its calls cost, the burst at its start, the costliest hedge
// twice, and the costliest hedge for each hedge that wins.
//
// Let f = paid − earned − costliest·wins, summed up from the beginning. Then the bound is f(end) ≤
// f(start) + burst(start) + 2·costliest. So it is enough to know the least f + burst of all starts.
// What the burst pays, without savings and wins, is at most the share and the burst; and savings
// pay for at most two hedges, and one for each win. Intervals that begin before the bucket owed
// something last have the burst of that time as well.
type intervals struct {
	share, costliest  float64 // the largest share, and the costliest hedge, of the run
	calls             []costly
	f, least, debt    float64
	beforeDebt        float64 // the least f + burst of starts before that
	burstF            float64 // the same of what the burst paid
	burstLeast        float64
	saved, savedLeast int // hedges from savings − wins
}

type costly struct {
	at   time.Duration
	cost float64
}

func newIntervals(share, costliest float64) *intervals {
	return &intervals{share: share, costliest: costliest, least: math.Inf(1), beforeDebt: math.Inf(1), burstLeast: math.Inf(1)}
}

// burst is what the calls of the two seconds before earned, and the costliest hedge of the minute
// before at least, or 1 if none of half a minute had a cost.
func (b *intervals) burst(now time.Duration) float64 {
	for len(b.calls) > 0 && b.calls[0].at < now-time.Minute {
		b.calls = b.calls[1:]
	}
	earned, costliest, lately := 0.0, 0.0, false
	for i := len(b.calls) - 1; i >= 0; i-- {
		c := b.calls[i]
		if c.at >= now-2*time.Second {
			earned += b.share * c.cost
		}
		costliest = max(costliest, c.cost)
		lately = lately || c.cost > 0 && c.at > now-30*time.Second
	}
	if !lately {
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

// pay returns how much is above the bounds.
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

// owe is pay of an attempt that the bucket owes.
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

// TestRule12_InAnyIntervalWithCosts draws traffic of all rates, with pauses, costs, hedges that win
// and lose, hedges that are dropped or turned away, calls that take back their share, attempts that
// the bucket owes, and shares that change.
func TestRule12_InAnyIntervalWithCosts(t *testing.T) {
	longtest.Computation(t)
	menus := [][]float64{{1}, {1, 1, 1, 100}, {0.1, 1, 7, 0}, {1, 2.5, 30, math.Inf(1), math.NaN(), -5}, {3}, {0.03}, {0.03, 1e-6, 0.031, 1}}
	paid, owed := 0.0, 0
	for seed := range uint64(longtest.Size(100, 1_000)) {
		r := rand.New(rand.NewPCG(seed, 17))
		menu := menus[r.IntN(len(menus))]
		costliest := 0.0
		for _, cost := range menu {
			costliest = max(costliest, priceOf(cost))
		}
		shares := []float64{[]float64{0.01, 0.10, 0.5, 4}[r.IntN(4)]}
		if r.IntN(3) == 0 {
			shares = append(shares, 0, shares[0]/3)
		}
		run := boundRun{bound: newIntervals(shares[0], costliest), bucket: budget.New(100 * shares[0]), r: r, menu: menu, shares: shares}
		run.odd = []float64{0, 300}[r.IntN(2)]
		run.away = []float64{0, 0, .3, 1}[r.IntN(4)]
		for range 2000 {
			run.step()
			if run.over > 1e-6 {
				t.Fatalf("seed %d, %v: %v more than the bound", seed, run.now, run.over)
			}
		}
		paid += run.paid
		owed += run.owed
	}
	if paid == 0 || owed == 0 {
		t.Errorf("%v paid, %d owed: the test has come to nothing", paid, owed)
	}
}

// boundRun is one bucket, and what it is asked for.
type boundRun struct {
	bound      *intervals
	bucket     *budget.Bucket
	r          *rand.Rand
	menu       []float64
	shares     []float64
	now        time.Duration
	odd        float64 // the cost of a call in 500, which is not slow; 0: none
	rate, wins float64 // calls a second, and the share of hedges that win
	away       float64 // the share of hedges that servers turn away
	over, paid float64
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
		run.bucket.SetPercent(100 * run.shares[r.IntN(len(run.shares))])
	}
	cost := run.menu[r.IntN(len(run.menu))]
	odd := run.odd > 0 && r.IntN(500) == 0 // a costly call that is not slow
	if odd {
		cost = run.odd
	}
	run.bound.call(run.now, priceOf(cost))
	run.bucket.Earn(at(run.now), cost)
	if odd {
		return
	}
	for range r.IntN(3) {
		paid, saved := run.bucket.Pay(at(run.now), r.IntN(2) == 0, cost)
		switch {
		case !paid && r.IntN(20) == 0:
			run.bucket.Forfeit(cost)
			return
		case !paid && r.IntN(4) == 0 && run.bucket.Owe(at(run.now), cost):
			run.owed++
			run.over = max(run.over, run.bound.owe(run.now, priceOf(cost)))
			return
		case !paid:
			return
		case r.IntN(10) == 0: // dropped
			run.bucket.Refund(saved, cost)
			continue
		case run.away > 0 && r.Float64() < run.away: // its server turned it away, and it cost a tenth
			run.bucket.TurnedAway(saved, cost)
			run.over = max(run.over, run.bound.pay(saved, priceOf(cost)/10))
			run.paid += priceOf(cost) / 10
			continue
		}
		run.paid += priceOf(cost)
		run.over = max(run.over, run.bound.pay(saved, priceOf(cost)))
		won := r.Float64() < run.wins
		run.bucket.Hedged(won)
		if won {
			run.bound.win()
		}
	}
}

// priceOf is what a hedge of that cost takes.
func priceOf(cost float64) float64 {
	if !budget.IsCost(cost) {
		return 1
	}
	return cost
}

// TestRule12_NoSavingsInAnOutage hedges every call from one moment on, and none of the hedges wins.
// The bound holds at every call, and it is no larger than it must be: nearly all of it is paid.
func TestRule12_NoSavingsInAnOutage(t *testing.T) {
	for _, tc := range []struct {
		rate    int // calls a second
		cost    float64
		percent float64
	}{{1, 1, 10}, {5, 1, 10}, {50, 1, 10}, {1000, 1, 10}, {100, 5, 10}, {100, 0.03, 10}, {1, 1, 50}, {10, 1, 0.5}, {10, 1, 50}, {1000, 1, 0.5}, {1000, 1, 50}} {
		b, pause, share := budget.New(tc.percent), time.Second/time.Duration(tc.rate), tc.percent/100
		now := time.Duration(0)
		for ; now < time.Minute; now += pause {
			b.Earn(at(now), tc.cost)
		}
		win(b) // until now they did
		burst, calls, hedges := b.Balance(at(now)).Burst, 0.0, 0.0
		for ; now < 2*time.Minute; now += pause {
			b.Earn(at(now), tc.cost)
			calls += tc.cost
			if paid, _ := b.Pay(at(now), true, tc.cost); paid {
				hedges += tc.cost
			}
			if now > time.Minute+time.Second { // so long they take
				b.Hedged(false)
			}
			if most := burst + share*calls + 2*tc.cost; hedges > most+1e-6 {
				t.Fatalf("%+v: hedges of %v in calls of %v, with a burst of %v", tc, hedges, calls, burst)
			}
		}
		if least := 0.95 * (burst + share*calls + 2*tc.cost); hedges < least && hedges < share*calls+2*tc.cost {
			t.Errorf("%+v: hedges of %v in calls of %v, want %v: the budget is there to be used", tc, hedges, calls, least)
		}
	}
}
