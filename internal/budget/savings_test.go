package budget_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
)

// win gives a bucket the highest score.
func win(b *budget.Bucket) {
	for range 10 {
		b.Hedged(true)
	}
}

// saved is a bucket after ten seconds of unhedged calls, rate per second, at 10%.
func saved(rate int) *budget.Bucket {
	b := budget.New(10)
	earn(b, 10*rate, 0, 10*time.Second)
	return b
}

const afterTen = 10 * time.Second

// drainSaved spends from savings until refused and returns the number of hedges.
func drainSaved(b *budget.Bucket, now time.Duration) (n int) {
	for b.SpendSaved(at(now), 1) {
		n++
	}
	return n
}

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
		{"no call", 0, 0, 0, 1, 0, 5, 1},
		{"9 calls in ten seconds", 9, afterTen, afterTen, 1, 0.9, 5, 1},
		{"a call per second", 60, time.Minute, time.Minute, 1, 4, 5, 5},
		{"1000 per second", 10_000, afterTen, afterTen - 1, 200, 700, 1000, 900}, // four bursts of the seven steps before
		{"1000 per second, an hour ago", 10_000, afterTen, time.Hour, 1, 4, 5, 5},
	} {
		b := budget.New(10)
		earn(b, tc.calls, 0, tc.within)
		got := b.Balance(at(tc.at))
		if !near(got.Tokens, tc.tokens, 1e-6) || !near(got.Saved, tc.saved, 1e-6) ||
			!near(got.Capacity, tc.of, 1e-6) {
			t.Errorf("%s: %+v, want %v tokens and %v saved of %v", tc.name, got, tc.tokens, tc.saved, tc.of)
		}
		win(b)
		paid := drain(b, tc.at)
		for b.SpendSaved(at(tc.at), 1) {
			b.Hedged(true)
			paid++
		}
		if paid != tc.paid {
			t.Errorf("%s: paid for %d hedges, want %d", tc.name, paid, tc.paid)
		}
	}
}

// TestSavings_NeedHedgesThatWin: two hedges are paid ahead of a win if more than a third of recent
// hedged calls were won, and one for each win from then on. A refusal counts for nothing.
func TestSavings_NeedHedgesThatWin(t *testing.T) {
	for ended, want := range map[string]int{ // w: won by a hedge, l: not, r: two refusals
		"": 0, "w": 0, "ww": 2, "wwl": 0, "wwwll": 2, "wwwwwwwwlll": 0, "lww": 2, "lwlwlwlw": 2,
		"lllwlllwlllw": 0, "rrww": 2, "wwr": 2,
	} {
		b := budget.New(10)
		for _, c := range ended {
			if c == 'r' {
				drainSaved(b, 0)
			} else {
				b.Hedged(c == 'w')
			}
		}
		earn(b, 10_000, 0, afterTen)
		if got := drainSaved(b, afterTen); got != want {
			t.Errorf("%q: paid for %d hedges, want %d", ended, got, want)
		}
		for range want {
			b.Hedged(true)
			if got := drainSaved(b, afterTen); got != 1 {
				t.Errorf("%q: paid for %d hedges after a win, want 1", ended, got)
			}
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
		if paid, _ := b.Pay(at(afterTen), 0, 1); !paid {
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

// A refund restores the balance, and what savings pay for: two hedges ahead of a win.
func TestRefund(t *testing.T) {
	b := saved(1000)
	win(b)
	before := b.Balance(at(afterTen))
	for range 1000 {
		if !b.Spend(at(afterTen), 1) || !b.SpendSaved(at(afterTen), 1) {
			t.Fatal("refused although each token was refunded")
		}
		b.Refund(false, false, 1)
		b.Refund(true, false, 1)
	}
	if got := b.Balance(at(afterTen)); got != before {
		t.Errorf("%+v after refunds, %+v before", got, before)
	}
}
