package knee_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/knee"
	"github.com/grpchedge/hedge/sketch"
)

// of is the distribution of so many calls with a median and a sigma, of which one in twenty takes eight times as long.
func of(calls int, median time.Duration, seed uint64) *sketch.Distribution {
	r := rand.New(rand.NewPCG(seed, 5))
	now := time.Unix(1e9, 0)
	w := sketch.New(time.Minute)
	for range calls {
		d := float64(median) * math.Exp(0.45*r.NormFloat64())
		if r.IntN(20) == 0 {
			d *= 8
		}
		w.Observe(now, time.Duration(d))
	}
	return w.Snapshot(now)
}

func TestContradicts(t *testing.T) {
	const ms = time.Millisecond
	nothing := &sketch.Distribution{}
	taken := of(1_000, 5*ms, 1)
	for _, c := range []struct {
		name    string
		median  time.Duration
		calls   int
		earlier bool // the calls ended a while ago
		want    bool
	}{
		{"no call", 5 * ms, 0, true, false},
		{"the same distribution, few calls", 5 * ms, 10, true, false},
		{"the same distribution, many calls", 5 * ms, 2_000, true, false},
		{"nearly the same", 6 * ms, 2_000, true, false},
		{"four times slower, four calls", 20 * ms, 4, true, false},
		{"four times slower, fifteen calls", 20 * ms, 15, false, true},
		{"half as slow again, a hundred calls", 7500 * time.Microsecond, 100, false, true},
		{"four times faster, fifteen calls", 1250 * time.Microsecond, 15, true, true},
		{"four times faster, but the slow ones may not have ended", 1250 * time.Microsecond, 100, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := of(c.calls, c.median, 2)
			earlier := nothing
			if c.earlier {
				earlier = calls
			}
			if got := knee.Contradicts(taken, calls, earlier); got != c.want {
				t.Errorf("contradicted: %v, want %v", got, c.want)
			}
		})
	}
}

// TestContradicts_NotByChance looks at calls of the same distribution as often as a learner does.
func TestContradicts_NotByChance(t *testing.T) {
	taken := of(1_000, 5*time.Millisecond, 1)
	for seed := range uint64(2_000) {
		calls := of(5+int(seed)%300, 5*time.Millisecond, 100+seed)
		if knee.Contradicts(taken, calls, calls) {
			t.Fatalf("seed %d: %d calls of the same distribution contradict it", seed, calls.Total())
		}
	}
}
