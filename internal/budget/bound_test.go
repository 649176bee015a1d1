package budget_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
)

// intervals checks the bound of package budget over all intervals at once: an interval has at most as
// many hedges as the share of its calls, the burst at its start, two, and one for each hedge that wins.
//
// Let f be the sum of paid − earned − wins since the beginning. The bound is then f(end) ≤ f(start) +
// burst(start) + 2, so the least f + burst of all starts is enough. Hedges that the burst pays for,
// without savings and wins, cost at most the share and the burst. Savings pay for at most two hedges,
// and one for each win. Intervals that begin before the bucket last borrowed have the burst of that
// time in addition.
type intervals struct {
	share             float64 // the largest of the run
	calls             []time.Duration
	f, least, debt    float64
	beforeDebt        float64 // the least f + burst of starts before the last debt
	burstF            float64 // f of the hedges that the burst paid for
	burstLeast        float64
	saved, savedLeast int // hedges from savings − wins
	slow              []time.Duration
	slowBurst         []float64 // at the start of each slow call

	behind time.Duration // by which the bucket's clock can be behind, so that shares live longer
}

func newIntervals(share float64) *intervals {
	most := math.Inf(1)
	return &intervals{share: share, least: most, beforeDebt: most, burstLeast: most}
}

// burst is the sum of the shares that live, now or at the start of a slow call of the last minute, at
// least 1.
func (b *intervals) burst(now time.Duration) float64 {
	for len(b.slow) > 0 && b.slow[0] < now-time.Minute-b.behind {
		b.slow, b.slowBurst = b.slow[1:], b.slowBurst[1:]
	}
	return max(b.lives(now), slices.Max(append(b.slowBurst, 0)))
}

// lives is the sum of the shares that live, at least 1.
func (b *intervals) lives(now time.Duration) float64 {
	for len(b.calls) > 0 && b.calls[0] < now-2*time.Second-b.behind {
		b.calls = b.calls[1:]
	}
	return max(b.share*float64(len(b.calls)), 1)
}

func (b *intervals) call(now time.Duration) {
	burst := b.burst(now) // an interval may begin here
	b.least, b.burstLeast = min(b.least, b.f+burst), min(b.burstLeast, b.burstF+burst)
	b.calls = append(b.calls, now)
	b.f -= b.share
	b.burstF -= b.share
}

// slowCall records that the last call is a slow one.
func (b *intervals) slowCall(now time.Duration) {
	b.slow, b.slowBurst = append(b.slow, now), append(b.slowBurst, b.lives(now))
}

// pay returns the excess over the bounds after a hedge of that price.
func (b *intervals) pay(saved bool, price float64) (over float64) {
	b.f += price
	over = max(b.f-b.least, b.f-b.beforeDebt-b.debt) - 2
	if saved {
		b.saved++
		return max(over, float64(b.saved-b.savedLeast-2))
	}
	b.burstF += price
	return max(over, b.burstF-b.burstLeast)
}

// owe is pay for an attempt that the bucket borrows for.
func (b *intervals) owe(now time.Duration) (over float64) {
	b.f++
	b.debt, b.beforeDebt, b.least = b.burst(now), min(b.beforeDebt, b.least), math.Inf(1)
	return b.f - b.beforeDebt - b.debt - 2
}

func (b *intervals) win() {
	b.f--
	b.saved--
	b.savedLeast = min(b.savedLeast, b.saved)
}

// TestRule12_InAnyInterval draws traffic of all rates, with pauses, slow calls, clocks that differ, hedges that
// win and lose, are dropped or turned away, calls that forfeit their share, attempts that the bucket
// borrows for, and shares that change by much or by next to nothing. Payments and balance together
// never exceed the earnings and the first token.
func TestRule12_InAnyInterval(t *testing.T) {
	seeds := longtest.Size(120, 1_000)
	if testing.Short() {
		seeds = 15
	}
	paid, owed := 0.0, 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 17))
		shares := []float64{[]float64{0.01, 0.10, 0.5, 4}[r.IntN(4)]}
		if r.IntN(3) == 0 {
			shares = append(shares, 0, shares[0]/3, shares[0]*(1-1e-12))
		}
		run := boundRun{
			bound: newIntervals(shares[0]), bucket: budget.New(100 * shares[0]), r: r,
			shares: shares, share: shares[0], earned: 1,
			away:  []float64{0, 0, .3, 1}[r.IntN(4)],
			ahead: []time.Duration{0, 0, 200 * time.Millisecond}[r.IntN(3)],
			slow:  []int{0, 0, 1, 20}[r.IntN(4)],
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
	shares     []float64
	share      float64 // in force
	now, ahead time.Duration
	rate, wins float64 // calls per second, and the share of hedges that win
	away       float64 // the share of hedges that servers turn away
	over       float64
	paid       float64 // without what was borrowed
	earned     float64
	slow       int // one call in that many is slow; 0: none
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
	run.bound.call(run.now)
	delay := []time.Duration{0, time.Second / 2, time.Hour}[r.IntN(3)]
	if run.slow > 0 && r.IntN(run.slow) == 0 {
		delay = time.Second
		run.bound.slowCall(run.now)
	}
	run.bucket.Earn(now, delay)
	run.earned += run.share
	for range r.IntN(3) {
		paid, saved := run.bucket.Pay(now, float64(r.IntN(2)))
		switch {
		case !paid && r.IntN(20) == 0:
			run.bucket.Forfeit()
			return
		case !paid && r.IntN(4) == 0 && run.bucket.Borrow(now):
			run.owed++
			run.over = max(run.over, run.bound.owe(run.now))
			return
		case !paid:
			return
		case r.IntN(10) == 0: // dropped
			run.bucket.Refund(saved, false)
			continue
		case run.away > 0 && r.Float64() < run.away: // its server turned it away, and it costs a tenth
			run.bucket.Refund(saved, true)
			run.over = max(run.over, run.bound.pay(saved, 0.1))
			run.paid += 0.1
			continue
		}
		run.paid++
		run.over = max(run.over, run.bound.pay(saved, 1))
		won := r.Float64() < run.wins
		run.bucket.Hedged(won)
		if won {
			run.bound.win()
		}
	}
}

// TestRule12_NoSavingsInAnOutage hedges every call from one moment on, and no hedge wins. The bound
// holds at every call, and nearly all that it allows is paid.
func TestRule12_NoSavingsInAnOutage(t *testing.T) {
	for _, tc := range []struct {
		rate    int // calls per second
		percent float64
	}{{1, 10}, {50, 10}, {1000, 10}, {1, 50}, {10, 0.5}, {1000, 0.5}, {1000, 50}} {
		b, pause, share := budget.New(tc.percent), time.Second/time.Duration(tc.rate), tc.percent/100
		now := time.Duration(0)
		for ; now < time.Minute; now += pause {
			b.Earn(at(now), 0)
		}
		win(b)
		burst, calls, hedges := b.Balance(at(now)).Burst, 0.0, 0.0
		for ; now < 2*time.Minute; now += pause {
			b.Earn(at(now), 0)
			calls++
			if paid, _ := b.Pay(at(now), 0); paid {
				hedges++
			}
			if now > time.Minute+time.Second { // a hedged call takes a second
				b.Hedged(false)
			}
			if most := burst + share*calls + 2; hedges > most+1e-6 {
				t.Fatalf("%+v: %v hedges of %v calls, with a burst of %v", tc, hedges, calls, burst)
			}
		}
		if least := 0.93 * (burst + share*calls + 2); hedges < least && hedges < share*calls+2 {
			t.Errorf("%+v: %v hedges of %v calls, want %v", tc, hedges, calls, least)
		}
	}
}
