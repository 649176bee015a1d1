package budget_test

import (
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

// calls returns when the calls begin if those of each second come evenly within the first part of
// it.
func calls(rate int, length, within time.Duration) []time.Duration {
	var times []time.Duration
	for second := time.Duration(0); second < length; second += time.Second {
		for i := range rate {
			times = append(times, second+within*time.Duration(i)/time.Duration(rate))
		}
	}
	return times
}

// A demand of four fifths of what is earned is never refused after the first seconds of traffic.
func TestRule12_ModestDemandIsMet(t *testing.T) {
	longtest.Computation(t)
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
			calls := shape(traffic.rate, traffic.length)
			for _, percent := range traffic.percents {
				b := budget.New(percent)
				demand, busySince := 0.0, time.Duration(0)
				for i, now := range calls {
					if i > 0 && now-calls[i-1] > time.Minute {
						busySince = now
					}
					b.Earn(at(now), 1)
					for demand += 0.8 * percent / 100; demand >= 1; demand-- {
						if !b.Spend(at(now), false, 1) && now-busySince > 2*time.Second {
							t.Fatalf("%d a second, %s, %v%%: refused at %v with %+v", traffic.rate, name, percent, now, b.Balance(at(now)))
						}
					}
				}
			}
		}
	}
}
