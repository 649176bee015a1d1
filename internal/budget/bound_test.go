package budget_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
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
	paid       float64 // without borrowed tokens
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

// trickle is lognormal around 5 ms, and eight times that for 5% of attempts.
func trickle(r *rand.Rand) time.Duration {
	d := 5 * math.Exp(0.45*r.NormFloat64())
	if r.Float64() < 0.05 {
		d *= 8
	}
	return time.Duration(d * float64(time.Millisecond))
}

// A twelfth of attempts takes longer than trickleDelay, which five tokens at 10% pay for.
func trickleDelay() time.Duration {
	r, took := rand.New(rand.NewPCG(5, 5)), make([]time.Duration, 20_000)
	for i := range took {
		took[i] = trickle(r)
	}
	slices.Sort(took)
	return took[len(took)*11/12]
}

// between counts the times from one on and before another.
func between(times []time.Duration, from, to time.Duration) (n int) {
	for _, at := range times {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// TestRule12_FleetInAnOutage lets quiet clients lose a service that they share, for a minute and at
// the same moment. Each keeps to its share and three hedges, and the fleet is back at its share
// after ten seconds.
func TestRule12_FleetInAnOutage(t *testing.T) {
	longtest.Simulation(t)
	const outage, over, share = 5 * time.Minute, 6 * time.Minute, 0.10
	delay := trickleDelay()
	for _, tc := range []struct {
		name   string
		slower time.Duration
		most   float64 // hedges beyond the share: some win: their primaries would have been slow anyway
	}{
		{"every call takes a second longer", time.Second, 5},
		{"no attempt answers", time.Hour, 3},
	} {
		for rate, clients := range map[float64]int{0.2: longtest.Size(5, 100), 1: longtest.Size(50, 1_000),
			5: longtest.Size(5, 100)} {
			var began, sent []time.Duration // of the fleet
			worst, most := 0.0, tc.most
			if rate > 1 { // two seconds of over ten calls earn more than one hedge
				most += 0.5
			}
			for seed := range uint64(clients) {
				var mu sync.Mutex // attempts of a moment begin at once
				var hedges []time.Duration
				calls, _ := simulation.Client{
					Rate: rate, Calls: int(rate * 6.5 * 60), Seed: seed,
					Options: []hedge.Option{hedge.WithTrigger(hedge.Fixed(delay))},
					Latency: func(id uint64, attempt int, at time.Duration) time.Duration {
						d := trickle(simulation.Generator(seed, id, attempt))
						if attempt > 0 {
							mu.Lock()
							hedges = append(hedges, at)
							mu.Unlock()
						}
						if at >= outage && at < over {
							d += tc.slower
						}
						return d
					},
				}.Run(t)
				beyond := float64(between(hedges, outage, over)) - share*float64(len(calls.Between(outage, over)))
				worst = max(worst, beyond)
				if beyond > most {
					t.Errorf("%v a second, %s, seed %d: %.1f hedges beyond the share", rate, tc.name, seed, beyond)
				}
				sent = append(sent, hedges...)
				for _, c := range calls {
					began = append(began, c.At)
				}
			}
			t.Logf("%v a second, %s: at most %.1f hedges beyond the share", rate, tc.name, worst)
			for _, window := range []struct {
				name     string
				from, to time.Duration
			}{
				{"the minute before it", outage - time.Minute, outage},
				{"its first 10 s", outage, outage + 10*time.Second},
				{"the 50 s after that", outage + 10*time.Second, over},
			} {
				calls, hedges := between(began, window.from, window.to), between(sent, window.from, window.to)
				load := float64(hedges) / float64(calls)
				t.Logf("%d clients, %s: %d calls, %d hedges, %.1f%% more", clients, window.name, calls, hedges, 100*load)
				if most := share*float64(calls) + (tc.most+3)/2*float64(clients); float64(hedges) > most {
					t.Errorf("%s, %s: %d hedges, want at most %v", tc.name, window.name, hedges, most)
				}
				if load > 0.105 && rate == 1 && window.from == outage+10*time.Second {
					t.Errorf("%s: %.1f%% more after the first ten seconds, want at most 10.5%%", tc.name, 100*load)
				}
			}
		}
	}
}
