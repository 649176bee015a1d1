package trigger_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver/worlds"
	"github.com/grpchedge/hedge/internal/trigger"
)

// known returns the knowledge of a learner after the given number of calls.
func known(distribution worlds.Law, calls int) sketch.Counts {
	s := worlds.World{Law: distribution, Calls: calls, Rate: 100}.Run(4, worlds.Auto)
	return s.Learner.Primaries(s.Time())
}

// newcomer is a learner that starts from restored knowledge, with its own clock.
type newcomer struct {
	*trigger.Learner
	now          time.Time
	distribution worlds.Law
	id           uint64
}

func newNewcomer(distribution worlds.Law, k sketch.Counts, c *trigger.Config) *newcomer {
	l, epoch := manual(c)
	l.Restore(k)
	return &newcomer{Learner: l, now: epoch, distribution: distribution}
}

// calls makes answered calls, at 100 per second.
func (n *newcomer) calls(calls int) {
	for range calls {
		n.now = n.now.Add(10 * time.Millisecond)
		n.id++
		n.PrimaryEnded(n.now, n.distribution(9, n.id, 0, 0), true)
	}
}

func TestRestore_FirstCall(t *testing.T) {
	longtest.Computation(t)
	k := known(worlds.SlowOnes(5, .45, 8), 3_000)
	n := newNewcomer(worlds.SlowOnes(5, .45, 8), k, config())
	if e := n.Estimate(); e != nil {
		t.Fatalf("the estimate is %+v before any call asked", e)
	}
	first := n.EstimateFor(n.now)
	if first == nil || first.Delay < 6*ms || first.Delay > 25*ms {
		t.Fatalf("the estimate of the first call is %+v", first)
	}
	if n.Estimate().Choice == nil {
		t.Errorf("no choice was made from restored latencies: %+v", n.Estimate())
	}
	c := config()
	c.WarmupCalls = 5_000
	if e := newNewcomer(worlds.SlowOnes(5, .45, 8), k, c).EstimateFor(n.now); e != nil {
		t.Errorf("an estimate from %v calls, with a warm-up of 5000", k.Total())
	}
	if e := newNewcomer(worlds.SlowOnes(5, .45, 8), nil, config()).EstimateFor(n.now); e != nil {
		t.Errorf("an estimate from nothing: %+v", e)
	}
}

// TestRestore_Fades makes the learner's own calls slower than the restored ones, with a difference
// too small to count as another distribution at once.
func TestRestore_Fades(t *testing.T) {
	longtest.Computation(t)
	n := newNewcomer(worlds.SlowOnes(5.5, .45, 8), known(worlds.SlowOnes(5, .45, 8), 3_000), config())
	for _, want := range []float64{1000, 500, 0} { // own calls replace them, up to a fifth late
		if got := n.Primaries(n.now).Total() - float64(n.id); got < want-1 || got > want+200 {
			t.Errorf("%v restored calls count after %d calls, want %v, or up to 200 more", got, n.id, want)
		}
		n.calls(500 + int(1000-want))
	}
}

func TestRestore_AnotherDistribution(t *testing.T) {
	longtest.Computation(t)
	k := known(worlds.SlowOnes(5, .45, 8), 3_000)
	for median, calls := range map[float64]int{20: 32, 1.2: 450} { // faster: within two steps of the window
		n := newNewcomer(worlds.SlowOnes(median, .45, 8), k, config())
		n.EstimateFor(n.now)
		n.calls(calls)
		d, _ := n.Snapshot(n.now).Quantile(0.5)
		if got := float64(d) / float64(ms); math.Abs(got/median-1) > 0.3 {
			t.Errorf("the median is %.2f ms after %d calls, want %v", got, calls, median)
		}
		if got := n.Primaries(n.now).Total(); math.Abs(got-float64(calls)) > 1 {
			t.Errorf("%v calls are known, want the learner's own %d", got, calls)
		}
	}
}

// TestRestore_DuringWarmup requires the warm-up of a learner without a snapshot, if the snapshot is of
// another distribution.
func TestRestore_DuringWarmup(t *testing.T) {
	longtest.Computation(t)
	c := config()
	c.WarmupCalls = 100
	n := newNewcomer(worlds.SlowOnes(50, .45, 8), known(worlds.SlowOnes(5, .45, 8), 3_000), c)
	if n.EstimateFor(n.now) == nil {
		t.Fatal("no estimate from restored latencies")
	}
	if n.calls(50); n.Estimate() != nil {
		t.Errorf("%+v after 50 calls of another distribution", n.Estimate())
	}
	if n.calls(60); n.Estimate() == nil || n.Estimate().Delay < 50*ms {
		t.Errorf("%+v after 110 calls of another distribution", n.Estimate())
	}
}

// TestRestore_Burst starts with a thousand concurrent calls. The fastest of them end first.
func TestRestore_Burst(t *testing.T) {
	longtest.Computation(t)
	distribution := worlds.SlowOnes(5, .45, 8)
	n := newNewcomer(distribution, known(distribution, 3_000), config())
	n.EstimateFor(n.now)
	took := make([]time.Duration, 1_000)
	for id := range took {
		took[id] = distribution(9, uint64(id), 0, 0)
	}
	slices.Sort(took)
	for _, d := range took[:200] {
		n.PrimaryEnded(n.now.Add(d), d, true)
	}
	if got := n.Primaries(n.now.Add(took[200])).Total(); got < 990 {
		t.Errorf("%v calls are known once the fastest 200 of 1000 calls have ended: restored latencies were dropped",
			got)
	}
}
