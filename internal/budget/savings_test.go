package budget_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
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

// TestSavings_Fill: what goes beyond the burst is saved, up to four bursts. A client that falls
// silent keeps a handful.
func TestSavings_Fill(t *testing.T) {
	for _, tc := range []struct {
		name              string
		calls             int // in so long a time
		within, at        time.Duration
		tokens, saved, of float64
		paid              int // with hedges that win
	}{
		{"no call", 0, 0, 0, 1, 0, 5, 1},
		{"9 calls in ten seconds", 9, afterTen, afterTen, 1, 0.9, 5, 1},
		{"a call a second", 60, time.Minute, time.Minute, 1, 4, 5, 5},
		{"a call a second, an hour ago", 60, time.Minute, time.Hour, 1, 4, 5, 5},
		{"1000 a second", 10_000, afterTen, afterTen - 1, 200, 700, 1000, 900}, // four bursts of the seven steps before
		{"1000 a second, an hour ago", 10_000, afterTen, time.Hour, 1, 4, 5, 5},
	} {
		b := budget.New(10)
		earn(b, tc.calls, 0, tc.within)
		if got := b.Balance(at(tc.at)); !near(got.Tokens, tc.tokens, 1e-6) || !near(got.Saved, tc.saved, 1e-6) || !near(got.Capacity, tc.of, 1e-6) {
			t.Errorf("%s: %+v, want %v tokens and %v saved of %v", tc.name, got, tc.tokens, tc.saved, tc.of)
		}
		win(b)
		paid := drain(b, tc.at, true)
		for b.SpendSaved(at(tc.at), 1) {
			b.Hedged(true)
			paid++
		}
		if paid != tc.paid {
			t.Errorf("%s: paid for %d hedges, want %d", tc.name, paid, tc.paid)
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

// What a burst earns is there for its own late calls, and what it does not need for those of the
// next.
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

// TestSavings_NeedHedgesThatWin: two hedges are paid ahead of a win if more than a third of hedged
// calls were won lately, and one for each win from then on, whichever of the hedges won.
func TestSavings_NeedHedgesThatWin(t *testing.T) {
	for ended, want := range map[string]int{ // w: won by a hedge, l: not
		"": 0, "w": 0, "ww": 2, "wwl": 0, "wwwll": 2, "wwwwwwwwlll": 0, "lww": 2, "lwlwlwlw": 2, "lllwlllwlllw": 0,
	} {
		b := saved(1000)
		for _, c := range ended {
			b.Hedged(c == 'w')
		}
		if got := drainSaved(b, afterTen); got != want {
			t.Errorf("%q: paid for %d hedges, want %d", ended, got, want)
		}
	}
	b := saved(1000)
	win(b)
	for _, tc := range []struct{ wins, paid int }{{0, 2}, {1, 1}, {1, 1}, {1, 1}, {10, 2}} {
		for range tc.wins {
			b.Hedged(true)
		}
		if got := drainSaved(b, afterTen); got != tc.paid {
			t.Errorf("paid for %d hedges after %d wins more, want %d", got, tc.wins, tc.paid)
		}
	}
}

// TestRule12_StalledHedges has a third of the hedges go to the backend that stalls, and none of
// those ends meanwhile. The burst and the savings pay in turn, so that both are used, and no more
// than rule 12 allows.
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
