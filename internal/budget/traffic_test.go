package budget_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
)

// shapes are ways in which a rate of calls a second can come, for a length of time.
var shapes = map[string]func(rate int, length time.Duration) []time.Duration{
	"steady": func(rate int, length time.Duration) []time.Duration {
		return calls(rate, length, time.Second)
	},
	"bursty": func(rate int, length time.Duration) []time.Duration {
		return calls(rate, length, 10*time.Millisecond)
	},
	"idle for an hour": func(rate int, length time.Duration) []time.Duration {
		before := calls(rate, 2*time.Second, time.Second)
		after := calls(rate, length/3, time.Second)
		for i := range after {
			after[i] += time.Hour
		}
		return append(before, after...)
	},
}

// calls returns when the calls begin if those of each second come evenly within the first part of it.
func calls(rate int, length, within time.Duration) []time.Duration {
	var times []time.Duration
	for second := time.Duration(0); second < length; second += time.Second {
		for i := range rate {
			times = append(times, second+within*time.Duration(i)/time.Duration(rate))
		}
	}
	return times
}

// eachTraffic runs a test on each rate, shape and percentage.
func eachTraffic(t *testing.T, test func(t *testing.T, rate int, percent float64, calls []time.Duration)) {
	for _, traffic := range []struct {
		rate     int
		length   time.Duration
		percents []float64
	}{
		{1, 600 * time.Second, []float64{0.5, 10, 50, 400}},
		{10, 120 * time.Second, []float64{0.5, 10, 50, 400}},
		{1000, 30 * time.Second, []float64{0.5, 10, 50, 400}},
		{longtest.Size(5_000, 100_000), 11 * time.Second, []float64{10}},
	} {
		for name, shape := range shapes {
			times := shape(traffic.rate, traffic.length)
			for _, percent := range traffic.percents {
				t.Run(fmt.Sprintf("%d per s, %s, %v%%", traffic.rate, name, percent), func(t *testing.T) {
					test(t, traffic.rate, percent, times)
				})
			}
		}
	}
}

// An outage: every call wants one hedge after 20 ms, and another, urgently, after 40.
func TestRule12_OutageStaysWithinBudget(t *testing.T) {
	longtest.Computation(t)
	eachTraffic(t, func(t *testing.T, rate int, percent float64, calls []time.Duration) {
		b := budget.New(percent)
		var hedges []time.Duration
		var begun, first, second int // calls, and those whose first and second hedge was asked for
		for second < len(calls) {
			now, ask := calls[second]+40*time.Millisecond, &second
			if first < len(calls) && calls[first]+20*time.Millisecond < now {
				now, ask = calls[first]+20*time.Millisecond, &first
			}
			if begun < len(calls) && calls[begun] <= now {
				b.Earn(at(calls[begun]), 1)
				begun++
				continue
			}
			if b.Spend(at(now), ask == &second, 1) {
				hedges = append(hedges, now)
			}
			*ask++
		}
		checkWindows(t, rate, percent, calls, hedges)
		checkShare(t, percent, calls, hedges)
	})
}

// checkWindows checks each 10 s that begin with a hedge, knowing nothing of the bucket.
func checkWindows(t *testing.T, rate int, percent float64, calls, hedges []time.Duration) {
	const window = 10 * time.Second
	burst := max(1, percent/100*float64(2*rate))
	var call, callEnd, end int
	for i, from := range hedges {
		for call < len(calls) && calls[call] < from {
			call++
		}
		for callEnd < len(calls) && calls[callEnd] < from+window {
			callEnd++
		}
		for end < len(hedges) && hedges[end] < from+window {
			end++
		}
		if got, want := float64(end-i), percent/100*float64(callEnd-call)+burst; got > want+1e-6 {
			t.Fatalf("%v hedges in the 10 s from %v, with %d calls: want at most %v", got, from, callEnd-call, want)
		}
	}
}

// checkShare checks that after the first 2 s the extra load is the set share, neither more nor less.
func checkShare(t *testing.T, percent float64, calls, hedges []time.Duration) {
	from := 2 * time.Second
	if calls[len(calls)-1] > time.Hour {
		from += time.Hour
	}
	since := func(times []time.Duration) (n float64) {
		for _, at := range times {
			if at >= from {
				n++
			}
		}
		return n
	}
	got, want := since(hedges), since(calls)*min(percent/100, 2)
	if tolerance := 2 + 0.01*want; !near(got, want, tolerance) {
		t.Errorf("%v hedges since %v, want %v ± %v", got, from, want, tolerance)
	}
}

// A demand of four fifths of what is earned is never refused after the first seconds of traffic.
func TestRule12_ModestDemandIsMet(t *testing.T) {
	longtest.Computation(t)
	eachTraffic(t, func(t *testing.T, _ int, percent float64, calls []time.Duration) {
		b := budget.New(percent)
		demand, busySince := 0.0, time.Duration(0)
		for i, now := range calls {
			if i > 0 && now-calls[i-1] > time.Minute {
				busySince = now
			}
			b.Earn(at(now), 1)
			for demand += 0.8 * percent / 100; demand >= 1; demand-- {
				if !b.Spend(at(now), false, 1) && now-busySince > 2*time.Second {
					t.Fatalf("refused at %v with %v tokens of %v", now, b.Balance(at(now)).Tokens, b.Balance(at(now)).Burst)
				}
			}
		}
	})
}
