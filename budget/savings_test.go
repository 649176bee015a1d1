package budget_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpchedge/hedge/budget"
)

// win gives a bucket all the credit that it can have.
func win(b *budget.Bucket) {
	for range 100 {
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
		b.Earn(at(afterTen))
		b.Spend(at(afterTen), true)
		if got := b.Saved(at(afterTen)); got < tc.min-1e-6 || got > tc.max+1e-6 {
			t.Errorf("%d calls a second: %v saved, want %v to %v", tc.rate, got, tc.min, tc.max)
		}
	}
	b := budget.New(10)
	for i := range 100_000 {
		now := at(time.Duration(i) * time.Millisecond)
		b.Earn(now)
		b.Spend(now, true) // all that is earned is spent
	}
	if got := b.Saved(at(100 * time.Second)); got > 1 {
		t.Errorf("%v saved where nothing was left over", got)
	}
}

// A client that falls silent keeps a handful, by the burst that it has then.
func TestSavings_ShrinkWithTraffic(t *testing.T) {
	b := saved(1000)
	later := at(time.Hour)
	if got := b.Saved(later); got > 4 {
		t.Errorf("%v saved after an hour of silence", got)
	}
	win(b)
	paid := 0
	for b.SpendSaved(later, true) {
		paid++
	}
	if paid > 4 {
		t.Errorf("paid for %d hedges after an hour of silence", paid)
	}
}

func TestSavings_NeedHedgesThatWin(t *testing.T) {
	spend := func(b *budget.Bucket, veryLate bool) (paid int) {
		for b.SpendSaved(at(afterTen), veryLate) {
			paid++
		}
		return paid
	}
	for _, tc := range []struct {
		name  string
		ended []bool
		paid  int
	}{
		{"nothing known", nil, 0},
		{"one win", []bool{true}, 2},
		{"one loss", []bool{false}, 0},
		{"a win and a loss", []bool{true, false}, 0},
		{"a loss and a win", []bool{false, true}, 2},
		{"a third wins", []bool{true, false, false, true, false, false}, 0},
		{"two thirds win", []bool{true, true, false, true, true, false}, 4},
		{"a hundred wins", make([]bool, 100), 8},
	} {
		b := saved(1000)
		for _, won := range tc.ended {
			b.Hedged(won || len(tc.ended) == 100)
		}
		if got := spend(b, true); got != tc.paid {
			t.Errorf("%s: paid for %d hedges, want %d", tc.name, got, tc.paid)
		}
	}
}

// The lower half is for calls that are very late, and a refusal costs no credit.
func TestSavings_LowerHalfIsForVeryLateCalls(t *testing.T) {
	b := saved(1000)
	now := at(afterTen)
	full := b.Saved(now)
	paid := 0
	for {
		b.Hedged(true)
		if !b.SpendSaved(now, false) {
			break
		}
		paid++
	}
	if left := b.Saved(now); math.Abs(left-full/2) > 2 {
		t.Errorf("%v of %v left after %d hedges", left, full, paid)
	}
	for range 3 {
		b.SpendSaved(now, false)
	}
	for i := range 8 {
		if !b.SpendSaved(now, true) {
			t.Fatalf("hedge %d of a very late call refused with %v saved", i, b.Saved(now))
		}
	}
}

// TestRule12_SavingsStayWithinTheShare has everything hedged that can be, whatever becomes of it.
func TestRule12_SavingsStayWithinTheShare(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := budget.New(10)
		calls, hedges := 0, 0
		for now := time.Duration(0); now < time.Minute; now += time.Duration(r.ExpFloat64() * float64(2*time.Millisecond)) {
			b.Earn(at(now))
			calls++
			if now/(5*time.Second)%2 == 0 {
				continue // what is earned now is saved
			}
			for b.Spend(at(now), r.IntN(2) == 0) || b.SpendSaved(at(now), r.IntN(2) == 0) {
				hedges++
				b.Hedged(r.IntN(3) > 0)
			}
		}
		if most := 1 + 0.1*float64(calls); float64(hedges) > most || float64(hedges) < 0.5*most {
			t.Errorf("seed %d: %d hedges of %d calls", seed, hedges, calls)
		}
	}
}

// TestRule12_NoSavingsInAnOutage has every call hedged from one moment on, and none of the hedges wins.
func TestRule12_NoSavingsInAnOutage(t *testing.T) {
	b := saved(1000)
	win(b) // until now they did
	burst := b.Burst(at(afterTen))
	calls, hedges := 0, 0
	for now := afterTen; now < 2*afterTen; now += time.Millisecond {
		b.Earn(at(now))
		calls++
		if b.Spend(at(now), true) || b.SpendSaved(at(now), true) {
			hedges++
		}
		if now > afterTen+time.Second { // so long they take
			b.Hedged(false)
		}
		if most := burst + 0.1*float64(calls) + 8; float64(hedges) > most {
			t.Fatalf("%d hedges of %d calls, with a burst of %v", hedges, calls, burst)
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
				b.Earn(now)
				b.Hedged(i%3 != caller%3)
				if i/1000%2 == 1 && (b.Spend(now, true) || b.SpendSaved(now, true)) {
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

func TestSavings_NeverPay(t *testing.T) {
	for name, b := range map[string]*budget.Bucket{"zero": {}, "0%": budget.New(0)} {
		win(b)
		if b.SpendSaved(at(0), true) || b.Saved(at(0)) != 0 {
			t.Errorf("%s: a bucket that never pays has paid", name)
		}
	}
}
