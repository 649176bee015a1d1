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

// win gives a bucket all the trust that it can have.
func win(b *budget.Bucket) {
	for range 10 {
		b.Hedged(true)
	}
}

// saved is a bucket after ten seconds of so many calls a second that were never hedged, at 10%.
func saved(rate int) *budget.Bucket {
	b := budget.New(10)
	earn(b, 10*rate, 0, 10*time.Second)
	return b
}

const afterTen = 10 * time.Second

// drainSaved spends from savings until refused and returns how often it was paid.
func drainSaved(b *budget.Bucket, now time.Duration) (n int) {
	for b.SpendSaved(at(now), 1) {
		n++
	}
	return n
}

func TestSavings_FillFromWhatGoesBeyondTheBurst(t *testing.T) {
	for _, tc := range []struct {
		rate     int
		min, max float64 // tokens
	}{
		{0, 0, 0.1}, // of the call that is made below
		{1, 0, 1.1},
		{100, 70, 80}, // four bursts of nearly 20
		{1000, 700, 800},
	} {
		b := saved(tc.rate)
		b.Earn(at(afterTen), 1)
		b.Spend(at(afterTen), true, 1)
		if got := b.Balance(at(afterTen)).Saved; got < tc.min-1e-6 || got > tc.max+1e-6 {
			t.Errorf("%d calls a second: %v saved, want %v to %v", tc.rate, got, tc.min, tc.max)
		}
	}
	b := budget.New(10)
	for i := range 100_000 {
		now := at(time.Duration(i) * time.Millisecond)
		b.Earn(now, 1)
		b.Spend(now, true, 1) // all that is earned is spent
	}
	if got := b.Balance(at(100 * time.Second)).Saved; got > 1 {
		t.Errorf("%v saved where nothing was left over", got)
	}
}

// A client of one call a second has a handful after a minute, and keeps it.
func TestSavings_OfQuietClients(t *testing.T) {
	b := budget.New(10)
	earn(b, 60, 0, time.Minute)
	for _, now := range []time.Duration{time.Minute, time.Hour} {
		if tokens, saved, capacity := b.Balance(at(now)).Tokens, b.Balance(at(now)).Saved, b.Balance(at(now)).Capacity; tokens != 1 || saved != 4 || capacity != 5 {
			t.Errorf("after %v: %v tokens and %v saved of %v, want 1 and 4 of 5", now, tokens, saved, capacity)
		}
	}
	win(b)
	paid := drain(b, time.Hour, true)
	for b.SpendSaved(at(time.Hour), 1) {
		b.Hedged(true)
		paid++
	}
	if paid != 5 {
		t.Errorf("paid for %d hedges, want 5", paid)
	}
}

// What a burst earns is there for its own late calls, and what it does not need for those of the next.
func TestSavings_OfBurstsOfCalls(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 5 * time.Minute} {
		b := budget.New(10)
		for i := range 10 {
			now := time.Duration(i) * every
			for range 100 {
				b.Earn(at(now), 1)
			}
			if got := drain(b, now+10*time.Millisecond, true); got < 10 {
				t.Errorf("each %v: %d hedges paid for, want the 10 that the calls earn", every, got)
			}
		}
		for range 100 { // none of which is late
			b.Earn(at(10*every), 1)
		}
		if got := b.Balance(at(11*every)).Tokens + b.Balance(at(11*every)).Saved; got < 5 || got > 50 {
			t.Errorf("each %v: %v tokens after a burst without late calls, want 5 to 50", every, got)
		}
	}
}

// A client that falls silent keeps a handful, by the burst that it has then.
func TestSavings_ShrinkWithTraffic(t *testing.T) {
	b := saved(1000)
	later := time.Hour
	if got := b.Balance(at(later)).Saved; got != 4 {
		t.Errorf("%v saved after an hour of silence, want 4", got)
	}
	paid := 0
	for win(b); b.SpendSaved(at(later), 1); win(b) {
		paid++
	}
	if paid != 4 {
		t.Errorf("paid for %d hedges after an hour of silence, want 4", paid)
	}
}

func TestSavings_NeedHedgesThatWin(t *testing.T) {
	const w, l = true, false
	for _, tc := range []struct {
		name  string
		ended []bool
		paid  int
	}{
		{"nothing known", nil, 0},
		{"one win", []bool{w}, 0},
		{"two wins", []bool{w, w}, 2},
		{"two wins and a loss", []bool{w, w, l}, 0},
		{"three wins and two losses", []bool{w, w, w, l, l}, 2},
		{"many wins and three losses", []bool{w, w, w, w, w, w, w, w, l, l, l}, 0},
		{"a loss and two wins", []bool{l, w, w}, 2},
		{"half of them win", []bool{l, w, l, w, l, w, l, w}, 2},
		{"a quarter wins", []bool{l, l, l, w, l, l, l, w, l, l, l, w}, 0},
	} {
		b := saved(1000)
		for _, won := range tc.ended {
			b.Hedged(won)
		}
		if got := drainSaved(b, afterTen); got != tc.paid {
			t.Errorf("%s: paid for %d hedges, want %d", tc.name, got, tc.paid)
		}
	}
}

// Two hedges are paid ahead of a win, and one for each win from then on, whichever of the hedges won.
func TestSavings_AWinProvesOneHedge(t *testing.T) {
	b := saved(1000)
	win(b)
	if got := drainSaved(b, afterTen); got != 2 {
		t.Fatalf("paid for %d hedges ahead of a win, want 2", got)
	}
	for range 3 {
		b.Hedged(true)
		if got := drainSaved(b, afterTen); got != 1 {
			t.Errorf("paid for %d hedges after a win, want 1", got)
		}
	}
	win(b)
	if got := drainSaved(b, afterTen); got != 2 {
		t.Errorf("paid for %d hedges after many wins, want 2", got)
	}
}

// TestRule12_StalledHedges has a third of the hedges go to the backend that stalls, and none of those ends meanwhile. The burst
// and the savings pay in turn, so that both are used, and no more than rule 12 allows.
func TestRule12_StalledHedges(t *testing.T) {
	b := saved(1000)
	win(b)
	burst, held := b.Balance(at(afterTen)).Burst, b.Balance(at(afterTen)).Burst+b.Balance(at(afterTen)).Saved
	hedges, fromSavings, wins := 0, 0, 0
	for i := range 1000 {
		paid, saved := b.Pay(at(afterTen), true, 1)
		if !paid {
			break
		}
		hedges++
		if saved {
			fromSavings++
		}
		if most := 2 + wins; fromSavings > most {
			t.Fatalf("%d hedges from savings after %d wins, want at most %d", fromSavings, wins, most)
		}
		if i%3 > 0 {
			wins++
			b.Hedged(true)
		}
	}
	if least := 1.9 * burst; float64(hedges) < least || float64(hedges) > held {
		t.Errorf("%d hedges with a burst of %v, want at least %v and at most the %v held", hedges, burst, least, held)
	}
}

// A refusal for want of tokens leaves nothing unproven.
func TestSavings_ARefusalCostsNothing(t *testing.T) {
	b := budget.New(10)
	earn(b, 9, 0, 9*time.Second) // nine tenths of a token beyond the first
	win(b)
	for range 10 {
		if b.SpendSaved(at(afterTen), 1) {
			t.Fatal("paid with nine tenths of a token")
		}
	}
	earn(b, 100, 20*time.Second, time.Minute)
	if got := drainSaved(b, time.Minute); got != 2 {
		t.Errorf("paid for %d hedges, want 2", got)
	}
}

func TestRefund(t *testing.T) {
	now := afterTen
	b := saved(1000)
	win(b)
	tokens, saved := b.Balance(at(now)).Tokens, b.Balance(at(now)).Saved
	for range 1000 { // of hedges that are dropped, each again
		if !b.Spend(at(now), true, 1) {
			t.Fatal("refused though each token was given back")
		}
		b.Refund(false, 1)
		if !b.SpendSaved(at(now), 1) {
			t.Fatal("refused by the savings though each token was given back")
		}
		b.Refund(true, 1)
	}
	if got := b.Balance(at(now)).Tokens; !near(got, tokens, 1e-6) {
		t.Errorf("%v tokens after refunds, %v before", got, tokens)
	}
	if got := b.Balance(at(now)).Saved; !near(got, saved, 1e-6) {
		t.Errorf("%v saved after refunds, %v before", got, saved)
	}
	var none budget.Bucket
	none.Refund(true, 1)
	none.Refund(false, 1)
	if none.Spend(at(now), true, 1) || none.SpendSaved(at(now), 1) || none.Balance(at(now)).Tokens != 0 {
		t.Error("a bucket that never pays has paid")
	}
}

// TestRule12_SavingsStayWithinTheShare hedges everything that can be, whatever becomes of it.
func TestRule12_SavingsStayWithinTheShare(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := budget.New(10)
		calls, hedges := 0, 0
		for now := time.Duration(0); now < time.Minute; now += time.Duration(r.ExpFloat64() * float64(2*time.Millisecond)) {
			b.Earn(at(now), 1)
			calls++
			if now/(5*time.Second)%2 == 0 {
				continue // what is earned now is saved
			}
			for pays(b, at(now), r.IntN(2) == 0) {
				hedges++
				b.Hedged(r.IntN(3) > 0)
			}
		}
		if most := 1 + 0.1*float64(calls); float64(hedges) > most || float64(hedges) < 0.5*most {
			t.Errorf("seed %d: %d hedges of %d calls", seed, hedges, calls)
		}
	}
}

// TestRule12_InAnyIntervalWithSavings checks every interval that ends with a hedge: hedges ≤ the share of its calls + the burst
// and the savings at its start, and of the savings no more than two and one for each win in it.
func TestRule12_InAnyIntervalWithSavings(t *testing.T) {
	longtest.Computation(t)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		b := budget.New(10)
		rate := []float64{0.5, 1, 5, 20, 200}[seed%5]
		var won float64
		var ready, all bound // from the burst alone, and with savings
		ready = bound{share: 0.1, least: 1e9}
		all = ready
		fromSavings, wins := 0, 0
		least := 0 // over all starts, of wins before − hedges from savings before, negated
		now := time.Duration(0)
		for i := range 5_000 {
			if i%500 == 0 {
				won = []float64{0, 0.1, 0.5, 0.95}[r.IntN(4)]
			}
			now += time.Duration(r.ExpFloat64() / rate * 1e9)
			start := at(now - 1)
			ready.least = min(ready.least, b.Balance(start).Burst+float64(ready.hedges)-0.1*float64(i))
			all.least = min(all.least, b.Balance(start).Burst+b.Balance(start).Saved+float64(all.hedges)-0.1*float64(i))
			b.Earn(at(now), 1)
			for range r.IntN(4) {
				switch paid, saved := b.Pay(at(now), r.IntN(2) == 0, 1); {
				case paid && !saved:
					ready.hedges++
				case saved:
					if fromSavings++; fromSavings-wins-least > 2 {
						t.Fatalf("seed %d: %d hedges from savings more than wins", seed, fromSavings-wins-least)
					}
				default:
					continue
				}
				all.hedges++
				if over := float64(ready.hedges) - 0.1*float64(i+1) - ready.least; over > 1e-6 {
					t.Fatalf("seed %d, at %v: the burst paid for %v too many", seed, now, over)
				}
				if over := float64(all.hedges) - 0.1*float64(i+1) - all.least; over > 1e-6 {
					t.Fatalf("seed %d, at %v: %v too many", seed, now, over)
				}
				if r.Float64() < won {
					b.Hedged(true)
					wins++
				} else {
					b.Hedged(false)
				}
				least = min(least, fromSavings-wins)
			}
		}
		if all.hedges < 100 {
			t.Errorf("seed %d: %d hedges: the test has come to nothing", seed, all.hedges)
		}
	}
}

// TestRule12_NoSavingsInAnOutage hedges every call from one moment on, and none of the hedges wins.
func TestRule12_NoSavingsInAnOutage(t *testing.T) {
	for _, rate := range []int{1, 5, 50, 1000} {
		b := budget.New(10)
		earn(b, 60*rate, 0, time.Minute)
		win(b) // until now they did
		burst := b.Balance(at(time.Minute)).Burst
		calls, hedges := 0, 0
		for now := time.Minute; now < 2*time.Minute; now += time.Second / time.Duration(rate) {
			b.Earn(at(now), 1)
			calls++
			if pays(b, at(now), true) {
				hedges++
			}
			if now > time.Minute+time.Second { // so long they take
				b.Hedged(false)
			}
			if most := burst + 0.1*float64(calls) + 2; float64(hedges) > most {
				t.Fatalf("%d calls a second: %d hedges of %d calls, with a burst of %v", rate, hedges, calls, burst)
			}
		}
		if least := 0.1*float64(calls) + 2; float64(hedges) < least {
			t.Errorf("%d calls a second: %d hedges of %d calls: the budget is there to be used", rate, hedges, calls)
		}
	}
}

func TestSavings_Concurrently(t *testing.T) {
	b := budget.New(10)
	var hedges atomic.Int64
	var group sync.WaitGroup
	const callers, each = 8, 5_000
	for caller := range callers {
		group.Go(func() {
			for i := range each {
				now := at(time.Duration(i) * time.Millisecond)
				b.Earn(now, 1)
				b.Hedged(i%3 != caller%3)
				if i/1000%2 == 0 {
					continue
				}
				paid, saved := b.Pay(now, true, 1)
				switch {
				case !paid:
				case i%5 == 0:
					b.Refund(saved, 1)
				default:
					hedges.Add(1)
				}
			}
		})
	}
	group.Wait()
	if got, most := hedges.Load(), int64(1+callers*each/10); got > most || got < most/2 {
		t.Errorf("%d hedges, at most %d were earned", got, most)
	}
}

// Whatever callers do at the same time, no more than two hedges from savings are unproven.
func TestRule12_UnprovenHedgesConcurrently(t *testing.T) {
	for range 50 {
		b := saved(100)
		win(b)
		var hedges atomic.Int64
		var group sync.WaitGroup
		for caller := range 8 {
			group.Go(func() {
				for range 100 {
					if b.SpendSaved(at(afterTen), 1) {
						hedges.Add(1)
					}
					if caller == 0 {
						b.Hedged(false)
					}
				}
			})
		}
		group.Wait()
		if got := hedges.Load(); got > 2 {
			t.Fatalf("%d hedges ahead of a win", got)
		}
	}
}

func TestSavings_NeverPay(t *testing.T) {
	for name, b := range map[string]*budget.Bucket{"zero": {}, "0%": budget.New(0)} {
		win(b)
		if b.SpendSaved(at(0), 1) || b.Balance(at(0)).Saved != 0 || b.Balance(at(0)).Capacity != 0 {
			t.Errorf("%s: a bucket that never pays has paid", name)
		}
	}
}
