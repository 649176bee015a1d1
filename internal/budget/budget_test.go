package budget_test

import (
	"cmp"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/internal/testserver/worlds"
)

var origin = time.Now()

func at(d time.Duration) time.Time { return origin.Add(d) }

// earn lets n calls begin evenly between from and to.
func earn(b *budget.Bucket, n int, from, to time.Duration) {
	for i := range n {
		b.Earn(at(from+(to-from)*time.Duration(i)/time.Duration(n)), 0)
	}
}

// drain spends until refused and returns the number of hedges.
func drain(b *budget.Bucket, now time.Duration) (n int) {
	for b.Spend(at(now)) {
		n++
	}
	return n
}

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance }

func TestNew(t *testing.T) {
	for _, tc := range []struct {
		bucket *budget.Bucket
		start  float64 // tokens
		after  float64 // tokens, and burst, after 10 calls in 1 s
	}{
		{new(budget.Bucket), 0, 0},
		{budget.New(-1), 0, 0},
		{budget.New(math.NaN()), 0, 0},
		{budget.New(1e-8), 0, 0}, // too little to count
		{budget.New(10), 1, 1},
		{budget.New(50), 1, 5},
		{budget.New(401), 1, 40},
		{budget.New(math.Inf(1)), 1, 40},
	} {
		start := tc.bucket.Balance(at(0)).Tokens
		earn(tc.bucket, 10, 0, time.Second)
		after := tc.bucket.Balance(at(time.Second))
		paid, _ := tc.bucket.Pay(at(time.Second), 0)
		if start != tc.start || !near(after.Tokens, tc.after, 1e-6) || !near(after.Burst, tc.after, 1e-6) ||
			paid != (tc.after > 0) {
			t.Errorf("want %v tokens, then %v: got %v, %+v, paid: %v", tc.start, tc.after, start, after, paid)
		}
	}
}

// The burst is the earnings of the last 1.75 to 2 s.
func TestRule12_BurstFollowsTraffic(t *testing.T) {
	longtest.Computation(t)
	for _, tc := range []struct {
		rate     int
		percent  float64
		min, max float64
	}{
		{rate: 1, percent: 10, min: 1, max: 1},
		{rate: 20, percent: 10, min: 3.5, max: 4},
		{rate: 1000, percent: 10, min: 175, max: 200},
		{rate: 100_000, percent: 10, min: 17_500, max: 20_000},
		{rate: 100_000, percent: 400, min: budget.MaxBurst, max: budget.MaxBurst},
	} {
		b := budget.New(tc.percent)
		pause := time.Second / time.Duration(tc.rate)
		for now := time.Duration(0); now <= 4*time.Second; now += pause {
			b.Earn(at(now), 0)
			if got := b.Balance(at(now)).Burst; now >= 2*time.Second && (got < tc.min-1e-6 || got > tc.max+1e-6) {
				t.Fatalf("%d calls/s, %v%%: Burst at %v = %v, want %v to %v", tc.rate, tc.percent, now, got, tc.min, tc.max)
			}
		}
		if got := b.Balance(at(4 * time.Second)); got.Tokens < tc.min-1e-6 {
			t.Errorf("%d calls/s, %v%%: %+v, want %v tokens or more", tc.rate, tc.percent, got, tc.min)
		}
	}
}

// A slow call keeps the capacity of the two seconds before it for 30 to 60 s: its hedge is due later
// than its share expires. The delay of a call that is not to be hedged keeps nothing.
func TestRule12_SlowCallsKeepTheBurst(t *testing.T) {
	for delay, slow := range map[time.Duration]bool{
		875 * time.Millisecond: false, 900 * time.Millisecond: true, 29 * time.Second: true, 30 * time.Second: false,
	} {
		b := budget.New(10)
		for range 200 {
			b.Earn(at(0), delay)
		}
		for _, after := range []time.Duration{3 * time.Second, 29 * time.Second, time.Minute} {
			kept := slow && after < time.Minute
			if got := b.Balance(at(after)); (got.Burst == 20) != kept || (got.Tokens == 20) != kept {
				t.Errorf("200 calls with a delay of %v: %+v after %v, want them kept: %v", delay, got, after, kept)
			}
		}
	}
}

// TestReserve pays for hedges that keep a share of the reserve, and then for urgent ones. No hedge
// wins, so savings pay for none and count for none.
func TestReserve(t *testing.T) {
	for _, tc := range []struct {
		calls        int // in a second, at 10%
		keep         float64
		paid, urgent int
	}{
		{keep: 1, paid: 1}, {calls: 10, keep: 1, paid: 1},
		{calls: 50, keep: 1, paid: 3, urgent: 2}, {calls: 50, keep: .5, paid: 4, urgent: 1},
		{calls: 1000, keep: 1, paid: 90, urgent: 10}, {calls: 1000, keep: .5, paid: 95, urgent: 5}, {calls: 1000, paid: 100},
	} {
		b := budget.New(10)
		earn(b, tc.calls, 0, time.Second)
		pay := func(keep float64) (n int) {
			for paid := true; paid; n++ {
				paid, _ = b.Pay(at(time.Second), keep)
			}
			return n - 1
		}
		if paid, urgent := pay(tc.keep), pay(0); paid != tc.paid || urgent != tc.urgent {
			t.Errorf("%d calls, keep %v: paid for %d hedges and %d urgent ones, want %d and %d", tc.calls,
				tc.keep, paid, urgent, tc.paid, tc.urgent)
		}
	}
}

func TestTimesInAnyOrder(t *testing.T) {
	const second = time.Second
	for _, tc := range []struct {
		name  string
		late  time.Duration // of one call
		burst [2]float64    // after four seconds of 1,000 calls per second, at 10%
	}{
		{"a call from the next second", -second, [2]float64{175, 200}},
		{"a call from an hour ahead", -time.Hour, [2]float64{175, 200}},
		{"a call from 250 years ahead", -250 * 365 * 24 * time.Hour, [2]float64{175, 200}},
		{"a late call", 15 * second, [2]float64{175, 200.1}},
		{"the clock set back by an hour", time.Hour, [2]float64{175, 200}},
	} {
		for _, epoch := range []time.Time{origin, time.Unix(0, 0)} { // with and without a monotonic reading
			b := budget.New(10)
			b.Earn(epoch, 0)
			for range 1000 {
				b.Earn(epoch.Add(time.Minute), 0)
			}
			b.Earn(epoch.Add(time.Minute-tc.late), 0)
			back := time.Minute + second
			if tc.late > time.Minute {
				back -= tc.late
			}
			for n := range 4000 {
				b.Earn(epoch.Add(back+time.Duration(n)*time.Millisecond), 0)
			}
			if got := b.Balance(epoch.Add(back + 4*second)); got.Burst < tc.burst[0] || got.Burst > tc.burst[1] ||
				got.Tokens > got.Burst {
				t.Errorf("%s: %+v, want a burst of %v", tc.name, got, tc.burst)
			}
		}
	}
}

// A demand of four fifths of the earnings is never refused after the first two seconds of traffic.
func TestRule12_ModestDemandIsMet(t *testing.T) {
	longtest.Simulation(t)
	for _, tc := range []struct {
		rate, seconds int
		percents      []float64
		within        time.Duration // the calls of each second
	}{
		{rate: 1, seconds: 600, percents: []float64{0.5, 10, 50, 400}, within: time.Second},
		{rate: 10, seconds: 120, percents: []float64{0.5, 10, 50, 400}, within: 10 * time.Millisecond},
		{rate: 1_000, seconds: 11, percents: []float64{0.5, 10, 400}, within: 10 * time.Millisecond},
		// 100,000 tokens are the most
		{rate: longtest.Size(2_000, 100_000), seconds: 11, percents: []float64{10}, within: 10 * time.Millisecond},
	} {
		for _, percent := range tc.percents {
			b, demand := budget.New(percent), 0.0
			for i := range tc.rate * tc.seconds {
				now := time.Duration(i/tc.rate)*time.Second + tc.within*time.Duration(i%tc.rate)/time.Duration(tc.rate)
				b.Earn(at(now), 0)
				for demand += 0.8 * percent / 100; demand >= 1; demand-- {
					if !b.Spend(at(now)) && now > 2*time.Second {
						t.Fatalf("%+v, %v%%: refused at %v", tc, percent, now)
					}
				}
			}
		}
	}
}

// TestRule21_ADebtOfBusyTimes has a target owe a burst of 2,000 calls per second, and then have two
// calls per second: half of their earnings pay for hedges at once. If no hedge is due, all of their
// earnings repay the debt.
func TestRule21_ADebtOfBusyTimes(t *testing.T) {
	for _, due := range []bool{true, false} {
		b, now, owed, paid := budget.New(10), 10*time.Second, 0, 0
		earn(b, 20_000, 0, now)
		drain(b, now)
		for b.Borrow(at(now)) {
			owed++
		}
		first, free := time.Duration(0), time.Duration(0) // until a hedge is paid, and until the bucket lends
		for quiet := time.Duration(0); free == 0 && quiet < 2*time.Hour; quiet += time.Second / 2 {
			b.Earn(at(now+quiet), 0)
			switch {
			case due && b.Spend(at(now+quiet)):
				paid++
				first = cmp.Or(first, quiet)
			case b.Borrow(at(now + quiet)):
				free = quiet
			}
		}
		earned := 0.2 * free.Seconds()
		t.Logf("hedges are due: %v; %d owed, the first of %d hedges after %v, lends again after %v", due, owed,
			paid, first, free)
		if !near(float64(owed+paid), earned, 3) || due && (first > 15*time.Second || paid < owed-3) ||
			!due && free > 30*time.Minute {
			t.Errorf("%d owed, %d hedges, %v earned in %v, first after %v", owed, paid, earned, free, first)
		}
	}
}

// TestBursts checks the figures of docs/budget.md: how many of the ten late calls in a burst of
// 100, once a minute, the budget pays for. No hedge wins, so there are no savings.
func TestBursts(t *testing.T) {
	for _, tc := range []struct {
		delay time.Duration
		want  int
	}{{10 * time.Millisecond, 7}, {time.Second, 7}, {2 * time.Second, 7}, {10 * time.Second, 7}, {time.Minute, 1}} {
		b, now, paid := budget.New(10), time.Unix(0, 0), 0
		for range 20 {
			for range 100 {
				b.Earn(now, tc.delay)
			}
			paid = 0
			for range 10 {
				if ok, _ := b.Pay(now.Add(tc.delay), .5); ok {
					paid++
					b.Hedged(false)
				}
			}
			now = now.Add(time.Minute)
		}
		t.Logf("late after %v: %d of 10 hedges are paid for", tc.delay, paid)
		if paid != tc.want {
			t.Errorf("late after %v: %d of 10 hedges are paid for, want %d", tc.delay, paid, tc.want)
		}
	}
}

func TestParts(t *testing.T) {
	worlds.Ablate(t, []worlds.Part{
		worlds.Unset("savings", budget.SavedBursts, 0),
		worlds.Unset("savings pay only while hedges win", budget.LeastWins, math.MinInt),
		worlds.Unset("half of the burst pays before savings", budget.BurstFirst, 0),
		worlds.Unset("slow calls keep the burst", budget.Prompt, math.MaxInt64),
		worlds.Unset("reserve", budget.MaxReserve, 0),
		worlds.Unset("price", budget.MostPrice, budget.LeastPrice),
		worlds.Unset("refused hedges raise the price", budget.PerRefusal, 0),
	})
}

// Callers on many goroutines, whose clocks differ by up to 20 ms, never get more than was earned and
// the first token: within one step, with a step per call, and if the share moves all the time.
func TestRule12_ConcurrentSpendsNeverExceedEarnings(t *testing.T) {
	const callers, share = 8, 0.10
	calls := longtest.Size(10_000, 50_000)
	for name, tc := range map[string]struct {
		tick     time.Duration // between calls
		keep     float64       // the least share of the earnings that must be paid out
		percents []float64     // nil: the share stays
	}{
		"within a step":      {0, 1, nil},
		"across steps":       {50 * time.Microsecond, 0.99, nil},
		"a step per call":    {250 * time.Millisecond, 0, nil},
		"a share that moves": {50 * time.Microsecond, 0.05, []float64{10, 2, 9.999999, 0, 10, 0.5}},
	} {
		b := budget.New(100 * share)
		var clock, earned, paid atomic.Int64
		var group sync.WaitGroup
		for caller := range callers {
			group.Go(func() {
				for i := range calls {
					now := at(time.Duration(clock.Add(int64(tc.tick))) + time.Duration((caller*i)%20)*time.Millisecond)
					if tc.percents != nil {
						b.SetPercent(tc.percents[(caller+i)%len(tc.percents)])
					}
					earned.Add(1)
					b.Earn(now, 0)
					ok, saved := b.Pay(now, float64(i%2)/4)
					switch {
					case !ok:
						continue
					case i%7 == 0:
						b.Refund(saved, false)
						continue
					}
					b.Hedged(i%3 > 0)
					if n := paid.Add(1); float64(n) > share*float64(earned.Load())+1 {
						t.Errorf("%s: %d hedges paid for after at most %d calls", name, n, earned.Load())
						return
					}
				}
			})
		}
		group.Wait()
		held := b.Balance(at(time.Duration(clock.Load())))
		got, want := float64(paid.Load())+held.Tokens+held.Saved, tc.keep*share*float64(callers*calls)
		if got < want {
			t.Errorf("%s: %v hedges paid for or saved, want %v or more", name, got, want)
		}
	}
}

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
