package budget_test

import (
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
)

// A costly call raises the burst to the price of its hedge, for half a minute at least and a minute
// at most.
func TestBurst_OfACostlyCall(t *testing.T) {
	for _, tc := range []struct {
		name  string
		begin time.Duration // of the costly call, after the first one
		cost  float64
		at    time.Duration // after the costly call
		want  float64
	}{
		{"at once", 0, 50, 0, 50},
		{"half a minute", 29 * time.Second, 50, 30 * time.Second, 50},
		{"a minute", 0, 50, time.Minute, 1},
		{"a minute, begun late in its half", 29 * time.Second, 50, time.Minute, 1},
		{"a day", 0, 50, 24 * time.Hour, 1},
		{"the most", 0, 10_000, 29 * time.Second, 10_000},
		{"more than the most", 0, math.MaxFloat64, 29 * time.Second, 10_000},
		{"cheap", 0, 0.5, 0, 1},
		{"nothing", 0, 0, 0, 1},
		{"less than nothing", 0, -1, 0, 1},
		{"minus infinity", 0, math.Inf(-1), 0, 1},
		{"infinity", 0, math.Inf(1), 0, 1},
		{"no number", 0, math.NaN(), 0, 1},
		{"a time that is late", 31 * time.Second, 50, -5 * time.Second, 50},
		{"the clock set back by an hour", time.Hour, 50, -time.Hour, 1},
	} {
		b := budget.New(0.1)
		b.Earn(at(0), 1)
		b.Earn(at(tc.begin), tc.cost)
		if got := b.Balance(at(tc.begin + tc.at)).Burst; got != tc.want && tc.want != 10_000 || got < tc.want {
			t.Errorf("%s: the burst is %v, want %v", tc.name, got, tc.want)
		}
	}
}

// A call whose time is late counts with the latest ones.
func TestBurst_OfACostlyCallThatIsLate(t *testing.T) {
	b := budget.New(0.1)
	b.Earn(at(0), 2)
	b.Earn(at(31*time.Second), 3)
	b.Earn(at(29*time.Second), 50)
	if got := b.Balance(at(59 * time.Second)).Burst; got != 50 {
		t.Errorf("the burst is %v, want 50", got)
	}
}

// What went beyond the burst before a costly call is not there after it.
func TestEarn_BringsNothingBack(t *testing.T) {
	b := budget.New(10)
	for n := range 9 {
		b.Earn(at(time.Duration(n)*time.Millisecond), 1) // 0.9 tokens beyond the one of the start
	}
	b.Earn(at(10*time.Millisecond), 100)
	if got := b.Balance(at(10 * time.Millisecond)).Tokens; got != 11 {
		t.Errorf("%v tokens, want the one of before and the ten of the call", got)
	}
}
