package trigger_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/trigger"
)

// newcomers returns the calls of sixty clients with 300 calls each, which start from k.
func newcomers(distribution attemptDistribution, seed uint64, c *trigger.Config,
	k sketch.Counts) (calls []outcome) {
	for number := range uint64(60) {
		sim := client{distribution: distribution, calls: 300, rate: 30, seed: 1000*seed + number, config: c, restored: k}
		calls = append(calls, sim.run().done...)
	}
	return calls
}

// TestRestore_Newcomers restores what a snapshot has of another client, the latencies of its
// primaries, in clients that live for ten seconds.
func TestRestore_Newcomers(t *testing.T) {
	longtest.Computation(t)
	distribution := slowOnes(5, .45, 8)
	for seed := uint64(1); seed <= seeds(); seed++ {
		donor := client{distribution: distribution, calls: 6_000, rate: 30, seed: 77 + seed, config: config()}.run()
		known := donor.learner.Primaries(donor.time())
		unhedged := config()
		unhedged.MaxHedges = 0
		none := tail(newcomers(distribution, seed, unhedged, nil), 0.99)
		cold := newcomers(distribution, seed, config(), nil)
		warm := newcomers(distribution, seed, config(), known)
		t.Logf("p99 %.3f of none's without, %.3f with; load %.2f%%, %.2f%%", tail(cold, 0.99)/none,
			tail(warm, 0.99)/none, load(cold), load(warm))
		if share := tail(warm, 0.99) / none; share > 0.42 {
			t.Errorf("p99 is %.3f of none's, want at most 0.42", share)
		}
		if l := load(warm); l > 11.5 {
			t.Errorf("load %.2f%%, want at most 11.5%%", l)
		}
	}
}

// known returns the knowledge of a learner after the given number of calls.
func known(distribution attemptDistribution, calls int) sketch.Counts {
	s := client{distribution: distribution, calls: calls, rate: 100, seed: 4, config: config()}.run()
	return s.learner.Primaries(s.time())
}

// newcomer is a learner that starts from restored knowledge, with its own clock.
type newcomer struct {
	*trigger.Learner
	now          time.Time
	distribution attemptDistribution
	id           uint64
}

func newNewcomer(distribution attemptDistribution, k sketch.Counts, c *trigger.Config) *newcomer {
	l := &trigger.Learner{}
	n := &newcomer{Learner: l, now: time.Unix(1e9, 0), distribution: distribution}
	l.Start(c, trigger.Owner{Budget: budget.New(c.BudgetPercent), Epoch: n.now})
	l.Run(func(choose func()) { choose() })
	l.Restore(k)
	return n
}

// calls makes answered calls, at 100 per second.
func (n *newcomer) calls(calls int) {
	for range calls {
		n.now = n.now.Add(10 * time.Millisecond)
		n.id++
		n.PrimaryEnded(n.now, n.distribution(9, n.id, 0, 0), true)
	}
}

// median returns the median that the newcomer has learned, in ms.
func (n *newcomer) median() float64 {
	d, _ := n.Snapshot(n.now).Quantile(0.5)
	return float64(d) / float64(ms)
}

func TestRestore_FirstCall(t *testing.T) {
	longtest.Computation(t)
	k := known(slowOnes(5, .45, 8), 3_000)
	n := newNewcomer(slowOnes(5, .45, 8), k, config())
	if e := n.Estimate(); e != nil {
		t.Fatalf("the estimate is %+v before a call asked", e)
	}
	first := n.First(n.now)
	if first == nil || first.Delay < 6*ms || first.Delay > 25*ms {
		t.Fatalf("the estimate of the first call is %+v", first)
	}
	if e := n.Estimate(); e.Choice == nil {
		t.Errorf("no choice was made from what was restored: %+v", e)
	}
	c := config()
	c.WarmupCalls = 5_000
	if e := newNewcomer(slowOnes(5, .45, 8), k, c).First(n.now); e != nil {
		t.Errorf("an estimate from %v calls, where the warm-up takes 5000", k.Total())
	}
	if e := newNewcomer(slowOnes(5, .45, 8), nil, config()).First(n.now); e != nil {
		t.Errorf("an estimate from nothing: %+v", e)
	}
}

// TestRestore_Fades makes the learner's own calls slower than the restored ones, with a difference
// too small to count as another distribution at once.
func TestRestore_Fades(t *testing.T) {
	longtest.Computation(t)
	n := newNewcomer(slowOnes(5.5, .45, 8), known(slowOnes(5, .45, 8), 3_000), config())
	weight := func() float64 { return n.Primaries(n.now).Total() - float64(n.id) }
	if got := weight(); math.Abs(got-1_000) > 1 {
		t.Errorf("%v calls count at first, want 1000", got)
	}
	n.calls(500)
	if got := weight(); math.Abs(got-500) > 1 {
		t.Errorf("%v calls count after 500 calls, want 500", got)
	}
	n.calls(1_000)
	if got := weight(); math.Abs(got) > 1 {
		t.Errorf("%v calls count after 1500 calls, want 0", got)
	}
}

func TestRestore_AnotherDistribution(t *testing.T) {
	longtest.Computation(t)
	k := known(slowOnes(5, .45, 8), 3_000)
	for _, c := range []struct {
		name   string
		median float64
		calls  int
	}{
		{"slower", 20, 32},
		{"faster", 1.2, 450}, // within two steps of the window
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNewcomer(slowOnes(c.median, .45, 8), k, config())
			n.First(n.now)
			n.calls(c.calls)
			if got := n.median(); math.Abs(got/c.median-1) > 0.3 {
				t.Errorf("the median is %.2f ms after %d calls, want %v", got, c.calls, c.median)
			}
			if got := n.Primaries(n.now).Total(); math.Abs(got-float64(c.calls)) > 1 {
				t.Errorf("%v calls are known, want the %d of its own", got, c.calls)
			}
		})
	}
}

// TestRestore_AnotherDistributionDuringWarmup requires the warm-up of a learner without a
// snapshot.
func TestRestore_AnotherDistributionDuringWarmup(t *testing.T) {
	longtest.Computation(t)
	c := config()
	c.WarmupCalls = 100
	n := newNewcomer(slowOnes(50, .45, 8), known(slowOnes(5, .45, 8), 3_000), c)
	if n.First(n.now) == nil {
		t.Fatal("no estimate from what was restored")
	}
	n.calls(50)
	if e := n.Estimate(); e != nil {
		t.Errorf("%+v after 50 calls of another distribution, where the warm-up takes 100", e)
	}
	n.calls(60)
	if e := n.Estimate(); e == nil || e.Delay < 50*ms {
		t.Errorf("%+v after 110 calls of another distribution", e)
	}
}

// TestRestore_Burst starts with a thousand concurrent calls. The fastest of them end first.
func TestRestore_Burst(t *testing.T) {
	longtest.Computation(t)
	distribution := slowOnes(5, .45, 8)
	n := newNewcomer(distribution, known(distribution, 3_000), config())
	n.First(n.now)
	took := make([]time.Duration, 1_000)
	for id := range took {
		took[id] = distribution(9, uint64(id), 0, 0)
	}
	slices.Sort(took)
	for _, d := range took[:200] {
		n.PrimaryEnded(n.now.Add(d), d, true)
	}
	if got := n.Primaries(n.now.Add(took[200])).Total(); got < 990 {
		t.Errorf("%v calls are known when the fastest 200 of 1000 calls have ended: what was restored is forgotten",
			got)
	}
}

// TestRestore_CutShort restores from a client that hedges, which cuts primaries short: the
// restored latencies are what the primaries would have had.
func TestRestore_CutShort(t *testing.T) {
	longtest.Computation(t)
	distribution := slowOnes(5, .45, 8)
	s := client{distribution: distribution, calls: 20_000, rate: 500, seed: 4, config: config()}.run()
	free := config()
	free.MaxHedges = 0
	truth := client{distribution: distribution, calls: 20_000, rate: 500, seed: 5, config: free}.run()
	n := newNewcomer(distribution, s.learner.Primaries(s.time()), config())
	for _, q := range []float64{0.5, 0.9, 0.99} {
		got, _ := n.Snapshot(n.now).Quantile(q)
		want := tail(truth.done, q)
		if math.Abs(float64(got)/float64(ms)/want-1) > 0.1 {
			t.Errorf("quantile %v: %v of the knowledge, %.2f ms without hedging", q, got, want)
		}
	}
	if hedges := s.learner.Hedges(s.time()).Total(); hedges < 100 {
		t.Errorf("%d hedges are known", hedges)
	}
}
