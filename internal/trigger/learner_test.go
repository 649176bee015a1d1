package trigger_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/internal/testserver/worlds"
	"github.com/grpchedge/hedge/internal/trigger"
)

const ms = time.Millisecond

// config returns the defaults of a scheduler.
func config() *trigger.Config {
	return &trigger.Config{
		Quantile: 0.90, Auto: true, MaxHedges: 2, BudgetPercent: 10, MinDelay: ms,
		WarmupCalls: 20, Window: 30 * time.Second,
	}
}

func started(c *trigger.Config, epoch time.Time) *trigger.Learner {
	l := &trigger.Learner{}
	l.Start(c, trigger.Owner{Budget: budget.New(c.BudgetPercent), Origin: epoch})
	return l
}

// manual returns a learner that makes choices synchronously, and the start of its clock.
func manual(c *trigger.Config) (l *trigger.Learner, epoch time.Time) {
	epoch = time.Unix(1e9, 0)
	l = started(c, epoch)
	l.Run(func(choose func()) { choose() })
	return l, epoch
}

func TestRule15_AChoiceIsMadeOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := started(config(), time.Now())
		choices := map[*trigger.Estimate]bool{}
		const seconds, rate = 60, 1000
		for i := range seconds * rate {
			time.Sleep(time.Second / rate)
			l.PrimaryEnded(time.Now(), ms, true)
			if i%10 == 0 {
				synctest.Wait()
				choices[l.Estimate()] = true
			}
		}
		// One choice per second, plus the choices of the first calls: each after a quarter more
		// calls, or twice as many.
		if n := len(choices); n < seconds*9/10 || n > seconds+35 {
			t.Errorf("%d choices in %d s", n, seconds)
		}
	})
}

// TestUnknownDestination: hedges to an unknown destination are due after twice the median, where more calls
// are slow than lie above the quantile. At the quantile none would be sent, and none learned.
func TestUnknownDestination(t *testing.T) {
	l, now := manual(config())
	l.HedgesGoElsewhere()
	for i := range 100 {
		now = now.Add(100 * ms)
		took := 5 * ms
		if i%5 == 0 {
			took = time.Second
		}
		l.PrimaryEnded(now, took, true)
	}
	if got := l.Estimate().Delay; got < 9*ms || got > 11*ms {
		t.Errorf("the delay is %v, want twice the median, 10 ms", got)
	}
}

// TestRule16_MeasuredCallsAreBounded sends hedges at all possible ages.
func TestRule16_MeasuredCallsAreBounded(t *testing.T) {
	longtest.Computation(t)
	l, now := manual(config())
	random := rand.New(rand.NewPCG(1, 1))
	l.Run(func(func()) {}) // choices are made below
	for range 50 {
		now = now.Add(time.Second)
		for range 500 {
			l.PrimaryEnded(now, ms, true)
		}
		for range 2000 {
			age := time.Duration(1 + random.Int64N(1<<(1+random.IntN(39))))
			l.HedgedCall(age, time.Duration(random.Int64N(int64(10*time.Minute))), 1+random.IntN(4))
		}
		l.Choose(now)
		if got := l.Kinds(); got > 48 {
			t.Fatalf("%d kinds", got)
		}
	}
	if got := l.Kinds(); got < 40 {
		t.Errorf("%d kinds", got)
	}
}

// TestAuto_HedgesThatAreCutShort cuts nearly all hedges short, as their primaries answer soon after
// the hedges were sent. The learner must not take such hedges for fast: a hedge takes a second, as
// a primary does.
func TestAuto_HedgesThatAreCutShort(t *testing.T) {
	l, now := manual(config())
	for i := range 1000 {
		l.PrimaryEnded(now, time.Second+time.Duration(i%100)*ms, true)
		l.HedgeEnded(l, now, time.Duration(1+i%50)*ms, i%100 == 0) // one in a hundred was sent before calls became slow
	}
	l.Choose(now)
	if e := l.Estimate(); e.Choice == nil || e.Choice.PredictedLoad > 0.02 {
		t.Errorf("the choice is %+v, want a load of at most .02", e.Choice)
	}
}

// TestUnhedged_UnknownBeyondHedges has all slow calls hedged after 10 ms, but for one request in 300, which no
// hedge answers for 5 s. Too few calls show p99 without hedging until 30 were not hedged by chance.
func TestUnhedged_UnknownBeyondHedges(t *testing.T) {
	l, now := manual(config())
	for i := range 3000 {
		switch {
		case i%300 == 0:
			l.PrimaryEnded(now, 5*time.Second, true)
		case i%20 == 0:
			l.PrimaryEnded(now, 15*ms, false)
			l.HedgeEnded(l, now, 5*ms, true)
		default:
			l.PrimaryEnded(now, 5*ms, true)
		}
	}
	l.Choose(now)
	check := func(want time.Duration) {
		t.Helper()
		if p := l.Unhedged(now); p(.9).Round(ms) != 5*ms || p(.99).Round(2*ms) != want {
			t.Errorf("p90 is %v and p99 %v, want 5 ms and %v", p(.9), p(.99), want)
		}
	}
	check(0)
	for range 30 {
		l.UndrawnCall(now, l.Estimate(), 10*ms, trigger.Never, 40*ms, true)
	}
	check(40 * ms)
}

// TestUnhedged_WithoutHedges: calls that callers cut short do not make percentiles unknown.
func TestUnhedged_WithoutHedges(t *testing.T) {
	l, now := manual(config())
	for i := range 1000 {
		l.PrimaryEnded(now, time.Duration(5+i%2*10)*ms, i%50 > 0)
	}
	if p99 := l.Unhedged(now)(.99); p99.Round(ms) != 15*ms {
		t.Errorf("p99 is %v, want 15 ms", p99)
	}
}

// Regardless of how Configure interleaves with the ends of calls, once the next call has ended the
// estimate is made under the new configuration.
func TestConfigure_WhileCallsEnd(t *testing.T) {
	old, other := *config(), *config()
	old.Auto, other.Auto, other.MaxHedges = false, false, 1
	l, at := manual(&old)
	for range 1000 {
		l.PrimaryEnded(at, 10*ms, true)
	}
	for i := range longtest.Size(1_000, 20_000) {
		c := &old
		if i%2 == 0 {
			c = &other
		}
		var both sync.WaitGroup
		start := make(chan struct{})
		both.Go(func() {
			<-start
			l.Configure(c)
		})
		close(start)
		for range 3 {
			at = at.Add(ms)
			l.PrimaryEnded(at, 10*ms, true)
		}
		both.Wait()
		at = at.Add(ms)
		l.PrimaryEnded(at, 10*ms, true)
		if l.Estimate().Hedges != c.MaxHedges {
			t.Fatalf("round %d: the estimate was made under the previous configuration", i)
		}
	}
}

// The estimate of the first call after a pause includes all calls of the last burst, even its slow
// calls, which ended last.
func TestEstimateFor_RecomputesAfterAPause(t *testing.T) {
	l, epoch := manual(config())
	for burst := range 20 {
		at := epoch.Add(time.Duration(burst) * time.Minute)
		l.EstimateFor(at)
		for i := range 100 {
			took := time.Duration(100+i) * ms / 20 // 5 to 10 ms
			if i >= 88 {
				took = 50 * ms
			}
			l.PrimaryEnded(at.Add(took), took, true)
		}
	}
	next := epoch.Add(20 * time.Minute)
	e := l.EstimateFor(next)
	if e == nil || e.Choice == nil || e.Choice.UnhedgedTail < 45*ms || e.Choice.UnhedgedTail > 55*ms {
		t.Fatalf("%+v after twenty bursts, of which 12%% took 50 ms", e)
	}
	if l.EstimateFor(next.Add(ms)) != e || l.EstimateFor(next.Add(time.Hour)) != e {
		t.Error("the estimate is recomputed although no call has ended")
	}
}

// TestRule15_AllChoicesTogetherCostLittle has 2,000 methods request a choice ten times per second,
// with the cost of a choice on fast and slow machines.
func TestRule15_AllChoicesTogetherCostLittle(t *testing.T) {
	for _, each := range []time.Duration{10 * time.Microsecond, 50 * time.Microsecond, 300 * time.Microsecond, 20 * ms} {
		var p trigger.Pace
		const seconds = 30
		cost := time.Duration(0)
		for tick := range 10 * seconds {
			for range 2000 {
				if at := time.Duration(tick) * 100 * ms; p.Take(at) {
					p.Took(at, each)
					cost += each
				}
			}
		}
		share := seconds * time.Second / 100
		// Choices may run ahead by one second's share (10 ms), plus the last choice.
		if cost > share+10*ms+each || cost < share*9/10 {
			t.Errorf("%v a choice: %v in %d s, want 1%% of that", each, cost, seconds)
		}
	}
}

// TestPace_AStoppedProcess stops the process during choices: the next choice waits at most half a
// minute afterwards.
func TestPace_AStoppedProcess(t *testing.T) {
	for _, stopped := range []time.Duration{30 * time.Second, 24 * time.Hour} {
		for _, choices := range []int{1, 100} {
			var p trigger.Pace
			for range choices {
				p.Take(0)
			}
			for range choices {
				p.Took(0, stopped)
			}
			if !p.Take(stopped + 30*time.Second) {
				t.Errorf("stopped for %v during %d choices: the next choice waits for more than half a minute", stopped, choices)
			}
		}
	}
}

// TestRule15_AChoiceWaitsForItsTurn requires early and later choices to obey Pace, with the
// percentile in place of early choices. In virtual time the learner's own choices cost nothing, so the
// load of the machine does not matter.
func TestRule15_AChoiceWaitsForItsTurn(t *testing.T) {
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { choicesWait(t, busy) })
	}
}

func choicesWait(t *testing.T, busy bool) {
	c := config()
	c.BudgetPercent = 40
	l, epoch, choices := &trigger.Learner{}, time.Unix(1e9, 0), 0
	var pace trigger.Pace
	l.Start(c, trigger.Owner{Budget: budget.New(c.BudgetPercent), Pace: &pace, Origin: epoch})
	l.Run(func(choose func()) { choices++; choose() })
	of, random := testserver.DistributionT(t, "ttft"), simulation.Generator(1, 1, 1)
	calls := func(from, to time.Duration) {
		for at := from; at < to; at += ms {
			l.PrimaryEnded(epoch.Add(at), of.Draw(random), true)
		}
	}
	if busy {
		pace.Take(0)
		pace.Took(0, 200*ms) // uses up 20 s of Pace
	}
	calls(0, 190*ms)
	if d := l.Estimate().Delay; !busy && (choices < 2 || choices > 12 || d > 50*ms) {
		t.Errorf("%d choices, the delay is %v, want it below the slow attempts", choices, d)
	} else if busy && (choices > 0 || d < 150*ms) {
		t.Errorf("%d choices in other learners' turn, the delay is %v, want the 90th percentile", choices, d)
	}
	if calls(190*ms, 15*time.Second); busy && choices > 0 {
		t.Errorf("%d choices in other learners' turn", choices)
	}
	if calls(15*time.Second, 30*time.Second); choices < 5 {
		t.Errorf("%d choices, in ten seconds of its own turn", choices)
	}
}

func TestParts(t *testing.T) {
	worlds.Ablate(t, []worlds.Part{
		worlds.Unset("measured outcomes", trigger.Assumed, math.MaxFloat64),
		worlds.Unset("hedge latency", trigger.KeptHedges, 1e9),
		worlds.Unset("1000 kept calls", trigger.KeptCalls, 0),
		worlds.Unset("changes", trigger.Matters, 2),
		worlds.Unset("deadline factor", trigger.DeadlineFactor, 1),
		worlds.Unset("choice after a pause", trigger.StaleForNext, math.MaxInt32),
	})
}

// TestAuto_Worlds compares the trigger with plain calls, two percentiles and three fixed delays with
// the same budget, in each world of the table.
func TestAuto_Worlds(t *testing.T) {
	longtest.Computation(t)
	kinds := map[worlds.Kind][2][]worlds.Measures{} // ratios of worlds, and of their methods
	var mu sync.Mutex
	t.Run("all", func(t *testing.T) {
		for _, w := range worlds.All() {
			if !longtest.Long() && !w.Short {
				continue
			}
			t.Run(w.Name, func(t *testing.T) {
				t.Parallel()
				most := cmp.Or(w.Most, w.Kind.Most)
				if !longtest.Long() { // fewer seeds
					most = max(most, 1.25)
				}
				c := w.Compare(longtest.Size(1, 2))
				t.Log(c.Row)
				for i, ratio := range c.Ratio {
					if ratio > most {
						t.Errorf("%s is %.2f times that of the best policy, want at most %.2f", worlds.Measured[i], ratio, most)
					}
				}
				if most := cmp.Or(w.Load, 1.1*cmp.Or(w.Budget, 10)); c.Load > most {
					t.Errorf("load %.2f%%, want at most %v%%", c.Load, most)
				}
				mu.Lock()
				defer mu.Unlock()
				of := kinds[w.Kind]
				kinds[w.Kind] = [2][]worlds.Measures{append(of[0], c.Ratio), append(of[1], c.Methods...)}
			})
		}
	})
	for kind, ratios := range kinds {
		for i, what := range []string{"worlds", "methods"} {
			mean := worlds.GeometricMean(ratios[i])
			t.Logf("%s, mean of %d %s: %.3f times the best", kind.Name, len(ratios[i]), what, mean)
			for i, x := range mean {
				if most := kind.Mean[i]; longtest.Long() && x > most && !math.IsNaN(x) {
					t.Errorf("%s: %s of %s is %.3f times that of the best policy, want at most %.2f", kind.Name,
						worlds.Measured[i], what, x, most)
				}
			}
		}
	}
}

// TestAuto_ANearDeadline has 5% of attempts miss a deadline of three medians. Hedges prevent as many
// failures as the best percentile or fixed delay.
func TestAuto_ANearDeadline(t *testing.T) {
	longtest.Computation(t)
	failed := func(p worlds.Policy) (share float64) {
		done := worlds.NearDeadline.Run(1, p).Calls
		for _, c := range done {
			if c.Took >= worlds.NearDeadline.Deadline {
				share += 100 / float64(len(done))
			}
		}
		t.Logf("%+v: %.2f%% of calls fail", p, share)
		return share
	}
	best := math.Inf(1)
	for _, p := range []worlds.Policy{worlds.Never, {Quantile: .9}, {Quantile: .95},
		{Medians: 1.5}, {Medians: 2}, {Medians: 2.5}} {
		best = min(best, failed(p))
	}
	if got := failed(worlds.Auto); got > 1.1*best {
		t.Errorf("%.2f%% of calls fail, want at most 1.1 times the best, %.2f%%", got, best)
	}
}

func TestChanged(t *testing.T) {
	logNormal, usual := testserver.LogNormal, testserver.DistributionT(t, "straggler")
	later := testserver.Add(usual, testserver.Constant(time.Second))
	for _, tc := range []struct {
		name          string
		before, since testserver.Distribution
		n, m          int
		want          string
	}{
		{name: "nothing", before: usual, since: usual, n: 5000, m: 1000},
		{name: "nothing, from the fewest calls", before: usual, since: usual, n: 50, m: 60},
		{name: "an outage", before: usual, since: later, n: 5000, m: 60, want: "slower"},
		{name: "its end", before: later, since: usual, n: 5000, m: 60, want: "faster"},
		{name: "an outage, from a few calls", before: usual, since: later, n: 5000, m: 16, want: "slower"},
		{name: "too few to tell", before: usual, since: later, n: 5000, m: 8},
		{name: "nothing before", before: usual, since: later, m: 1000},
		{name: "a base four times as long", before: usual, n: 5000, m: 200, want: "slower", since: logNormal(20*ms, 8*ms)},
		{name: "a base a third as long again", before: usual, n: 5000, m: 200,
			since: logNormal(6650*time.Microsecond, 2650*time.Microsecond)},
		{name: "a quarter of the base, from few calls", before: usual, n: 1000, m: 20, want: "faster",
			since: logNormal(1250*time.Microsecond, 500*time.Microsecond)},
		{name: "one in twenty more is slow", before: usual, n: 5000, m: 1000,
			since: testserver.Straggler(logNormal(5*ms, 2*ms), 0.10, 10)},
	} {
		for seed := range uint64(longtest.Size(5, 100)) {
			slower, faster := trigger.Changed(observed(tc.before, tc.n, 2*seed), observed(tc.since, tc.m, 2*seed+1))
			if slower != (tc.want == "slower") || faster != (tc.want == "faster") {
				t.Errorf("%s, seed %d: slower %v, faster %v", tc.name, seed, slower, faster)
			}
		}
	}
	w, now := sketch.New(time.Hour), time.Now()
	for range 100 {
		w.Record(now, ms, false)
	}
	if slower, faster := trigger.Changed(observed(usual, 1000, 1), w.Snapshot(now)); slower || faster {
		t.Errorf("calls that were all cut short show no latency: slower %v, faster %v", slower, faster)
	}
}

// The fast calls of a burst end first, and its slow calls last. Neither is a change.
func TestChangeOfDistribution_NotInIdenticalBursts(t *testing.T) {
	for _, median := range longtest.First(1, []float64{1000, 5, 4000}) {
		s := worlds.World{
			Law: worlds.SlowOnes(median, .45, 8), Calls: 24_000, Gathered: 1000, Every: 2 * time.Minute,
		}.Run(1, worlds.Auto)
		if s.Learner.HasChanged() {
			t.Errorf("median %v ms: a change was noticed in identical bursts", median)
		}
	}
}
