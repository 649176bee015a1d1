package budget_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
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

// drainSaved spends from savings until refused and returns the number of hedges.
func drainSaved(b *budget.Bucket, now time.Duration) (n int) {
	for b.SpendSaved(at(now)) {
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
		{name: "no call", tokens: 1, of: 5, paid: 1},
		{name: "9 calls in ten seconds", calls: 9, within: afterTen, at: afterTen, tokens: 1, saved: 0.9, of: 5, paid: 1},
		{name: "a call per second", calls: 60, within: time.Minute, at: time.Minute, tokens: 1, saved: 4, of: 5, paid: 5},
		{name: "1000 per second", calls: 10_000, within: afterTen, at: afterTen - 1, tokens: 200,
			saved: 700, of: 1000, paid: 900}, // four bursts of the seven steps before
		{name: "1000 per second, an hour ago", calls: 10_000, within: afterTen, at: time.Hour, tokens: 1,
			saved: 4, of: 5, paid: 5},
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

// A refund restores the balance, and what savings pay for: two hedges ahead of a win.
func TestRefund(t *testing.T) {
	b := saved(1000)
	win(b)
	before := b.Balance(at(afterTen))
	for range 1000 {
		if !b.Spend(at(afterTen)) || !b.SpendSaved(at(afterTen)) {
			t.Fatal("refused although each token was refunded")
		}
		b.Refund(false, false)
		b.Refund(true, false)
	}
	if got := b.Balance(at(afterTen)); got != before {
		t.Errorf("%+v after refunds, %+v before", got, before)
	}
}
