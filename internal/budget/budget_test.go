package budget_test

import (
	"cmp"
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
)

var origin = time.Now()

func at(d time.Duration) time.Time { return origin.Add(d) }

// earn lets n calls begin evenly between from and to.
func earn(b *budget.Bucket, n int, from, to time.Duration) {
	for i := range n {
		b.Earn(at(from+(to-from)*time.Duration(i)/time.Duration(n)), 1)
	}
}

// drain spends until refused and returns how often it was paid.
func drain(b *budget.Bucket, now time.Duration, urgent bool) (n int) {
	for b.Spend(at(now), urgent, 1) {
		n++
	}
	return n
}

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance }

func TestNew(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name     string
		bucket   *budget.Bucket
		tokens   float64 // at the start
		after    float64 // tokens after 10 calls in 1 s
		maxBurst float64 // burst then
	}{
		{"zero value", new(budget.Bucket), 0, 0, 0},
		{"0%", budget.New(0), 0, 0, 0},
		{"-1%", budget.New(-1), 0, 0, 0},
		{"NaN%", budget.New(nan), 0, 0, 0},
		{"too small to count", budget.New(1e-8), 0, 0, 0},
		{"1%", budget.New(1), 1, 1, 1},
		{"10%", budget.New(10), 1, 1, 1},
		{"50%", budget.New(50), 1, 5, 5},
		{"400%", budget.New(400), 1, 40, 40},
		{"401%", budget.New(401), 1, 40, 40},
		{"Inf%", budget.New(inf), 1, 40, 40},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.bucket.Balance(at(0)).Tokens; got != tt.tokens {
				t.Errorf("Tokens at the start = %v, want %v", got, tt.tokens)
			}
			earn(tt.bucket, 10, 0, time.Second)
			if got := tt.bucket.Balance(at(time.Second)).Tokens; !near(got, tt.after, 1e-6) {
				t.Errorf("Tokens = %v, want %v", got, tt.after)
			}
			if got := tt.bucket.Balance(at(time.Second)).Burst; !near(got, tt.maxBurst, 1e-6) {
				t.Errorf("Burst = %v, want %v", got, tt.maxBurst)
			}
			win(tt.bucket)
			if pays(tt.bucket, at(time.Second), true) != (tt.after > 0) {
				t.Errorf("paid from savings or the burst, with %v tokens", tt.after)
			}
			tt.bucket.Refund(false, 1)
			paid := drain(tt.bucket, time.Second, false)
			if got, want := paid+drain(tt.bucket, time.Second, true), int(tt.after+1e-6); got != want {
				t.Errorf("paid for %d hedges, want %d", got, want)
			}
		})
	}
}

// The burst is what the last 1.75 to 2 s of calls earned.
func TestRule12_BurstFollowsTraffic(t *testing.T) {
	longtest.Computation(t)
	for _, tt := range []struct {
		rate     int
		percent  float64
		min, max float64
	}{
		{1, 10, 1, 1},
		{1, 400, 7, 8},
		{5, 10, 1, 1},
		{20, 10, 3.5, 4},
		{1000, 0.01, 1, 1},
		{1000, 10, 175, 200},
		{100_000, 1, 1750, 2000},
		{100_000, 10, 17_500, 20_000},
		{100_000, 400, budget.MaxBurst, budget.MaxBurst},
	} {
		b := budget.New(tt.percent)
		pause := time.Second / time.Duration(tt.rate)
		for now := time.Duration(0); now <= 4*time.Second; now += pause {
			b.Earn(at(now), 1)
			if now < 2*time.Second {
				continue
			}
			if got := b.Balance(at(now)).Burst; got < tt.min-1e-6 || got > tt.max+1e-6 {
				t.Fatalf("%d calls/s, %v%%: Burst at %v = %v, want %v to %v", tt.rate, tt.percent, now, got, tt.min, tt.max)
			}
		}
		if got, want := b.Balance(at(4*time.Second)).Tokens, tt.min; got < want-1e-6 {
			t.Errorf("%d calls/s, %v%%: Tokens = %v, want %v or more", tt.rate, tt.percent, got, want)
		}
	}
}

// At few calls a second a token is saved up for, however long that takes.
func TestSlowTrafficSavesForOneToken(t *testing.T) {
	b := budget.New(2)
	b.Spend(at(0), true, 1)
	for i := range 100 {
		now := time.Duration(i) * time.Minute
		b.Earn(at(now), 1)
		if paid := b.Spend(at(now), false, 1); paid != (i%50 == 49) {
			t.Errorf("after %d calls Spend = %v", i+1, paid)
		}
	}
}

func TestReserveIsForUrgentHedges(t *testing.T) {
	for _, tt := range []struct {
		calls        int // in a second, at 10%
		paid, urgent int
	}{
		{0, 1, 0},
		{10, 1, 0},
		{20, 1, 1},    // the reserve is 0.25
		{50, 4, 1},    // 1
		{1000, 92, 8}, // never more than 8
	} {
		b := budget.New(10)
		earn(b, tt.calls, 0, time.Second)
		if got := drain(b, time.Second, false); got != tt.paid {
			t.Errorf("%d calls: paid for %d hedges that are not urgent, want %d", tt.calls, got, tt.paid)
		}
		if got := drain(b, time.Second, true); got != tt.urgent {
			t.Errorf("%d calls: paid for %d urgent hedges then, want %d", tt.calls, got, tt.urgent)
		}
	}
}

func TestTimesInAnyOrder(t *testing.T) {
	const second = time.Second
	for _, tc := range []struct {
		name   string
		run    func(*budget.Bucket)
		at     time.Duration
		tokens [2]float64 // at least and at most
	}{
		{"a clock set back", func(b *budget.Bucket) {
			earn(b, 1000, time.Hour, time.Hour+second)
			earn(b, 4000, 0, 4*second)
		}, 4 * second, [2]float64{175, 200}},
		{"a call late by as long as is remembered", func(b *budget.Bucket) {
			b.Earn(at(0), 1)
			earn(b, 1000, 10*second, 10*second+time.Millisecond)
			b.Earn(at(8*second), 1)
		}, 10 * second, [2]float64{100.1 - 1e-6, 100.1 + 1e-6}},
		{"a call from the next second", aheadBy(second), 6*second - 1, [2]float64{175, 200}},
		{"a call from an hour ahead", aheadBy(time.Hour), 6*second - 1, [2]float64{175, 200}},
		{"a call from 250 years ahead", aheadBy(250 * 365 * 24 * time.Hour), 6*second - 1, [2]float64{175, 200}},
	} {
		b := budget.New(10)
		tc.run(b)
		if got := b.Balance(at(tc.at)).Tokens; got < tc.tokens[0] || got > tc.tokens[1] {
			t.Errorf("%s: Tokens = %v, want %v", tc.name, got, tc.tokens)
		}
	}
	b, latest := budget.New(10), 12*second-time.Millisecond
	earn(b, 1000, 10*second, latest)
	for _, late := range []time.Duration{time.Millisecond, second, 3 * second, 15 * second} {
		want := b.Balance(at(latest)).Tokens + 0.1
		b.Earn(at(latest-late), 1)
		for _, now := range []time.Duration{latest, latest - late} {
			if got := b.Balance(at(now)).Tokens; !near(got, want, 1e-6) {
				t.Errorf("a call %v late: Tokens at %v = %v, want %v", late, now, got, want)
			}
		}
	}
	wall, epoch := budget.New(10), time.Unix(0, 0) // without a monotonic reading
	for i := range 4000 {
		wall.Earn(epoch.Add(time.Duration(i)*time.Millisecond), 1)
	}
	if got := wall.Balance(epoch.Add(4 * second)).Tokens; got < 175 || got > 200 {
		t.Errorf("by a wall clock Tokens = %v, want 175 to 200", got)
	}
}

// aheadBy has a thousand calls a second, one of them too far ahead.
func aheadBy(ahead time.Duration) func(*budget.Bucket) {
	return func(b *budget.Bucket) {
		earn(b, 1000, 0, time.Second)
		b.Earn(at(time.Second+ahead), 1)
		earn(b, 5000, time.Second, 6*time.Second)
	}
}

func TestNoAllocations(t *testing.T) {
	b, now := budget.New(10), origin
	b.Earn(now, 1)
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(100 * time.Millisecond)
		b.Earn(now, 1)
		b.Spend(now, false, 1)
		b.Spend(now, true, 1)
		b.SpendSaved(now, 1)
		b.Pay(now, true, 1)
		b.Hedged(true)
		b.Refund(true, 1)
		b.Balance(now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func pays(b *budget.Bucket, now time.Time, urgent bool) bool {
	paid, _ := b.Pay(now, urgent, 1)
	return paid
}

// TestRule21_ADebtOfBusyTimes has a target owe a burst of 2,000 calls a second, and then have two
// calls a second: half of what they earn pays for hedges at once. If none is due, all of it pays
// the debt.
func TestRule21_ADebtOfBusyTimes(t *testing.T) {
	for _, due := range []bool{true, false} {
		b, now, owed, paid := budget.New(10), time.Duration(0), 0, 0
		for ; now < 10*time.Second; now += time.Second / 2000 {
			b.Earn(at(now), 1)
		}
		for b.Spend(at(now), true, 1) {
		}
		for b.Owe(at(now), 1) {
			owed++
		}
		first, free := time.Duration(0), time.Duration(0) // after the debt was made: a hedge is paid, and something owed
		for quiet := time.Duration(0); free == 0 && quiet < 2*time.Hour; quiet += time.Second / 2 {
			b.Earn(at(now+quiet), 1)
			switch {
			case due && b.Spend(at(now+quiet), true, 1):
				paid++
				first = cmp.Or(first, quiet)
			case b.Owe(at(now+quiet), 1):
				free = quiet
			}
		}
		earned := 0.2 * free.Seconds()
		t.Logf("hedges are due: %v; %d owed, the first of %d hedges after %v, a debt again after %v", due, owed, paid, first, free)
		if math.Abs(float64(owed+paid)-earned) > 3 || due && (first > 15*time.Second || paid < owed-3) || !due && free > 30*time.Minute {
			t.Errorf("%d owed and %d hedges of %v that was earned in %v, the first after %v", owed, paid, earned, free, first)
		}
	}
}
