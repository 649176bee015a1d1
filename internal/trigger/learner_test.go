package trigger_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/trigger"
)

const ms = time.Millisecond

// config returns the defaults of a scheduler.
func config() *trigger.Config {
	return &trigger.Config{
		Quantile: 0.90, Auto: true, Target: 0.99, MaxHedges: 2, BudgetPercent: 10, MinDelay: ms,
		WarmupCalls: 20, Window: 30 * time.Second,
	}
}

func started(c *trigger.Config) *trigger.Learner {
	l := &trigger.Learner{}
	l.Start(c, trigger.Owner{Budget: budget.New(c.BudgetPercent), Epoch: time.Now()})
	return l
}

// TestRule15_AChoiceIsMadeOnceASecond counts the choices during a minute of calls.
func TestRule15_AChoiceIsMadeOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := started(config())
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

func TestRule15_ReadingDoesNotAllocate(t *testing.T) {
	l := started(config())
	for range 100 {
		l.PrimaryEnded(time.Now(), ms, true)
	}
	var delay time.Duration
	if n := testing.AllocsPerRun(100, func() { delay = l.Estimate().Delay }); n != 0 || delay < ms {
		t.Errorf("reading the delay %v allocates %v times", delay, n)
	}
}

// TestRule16_MeasuredCallsAreBounded sends hedges at all possible ages.
func TestRule16_MeasuredCallsAreBounded(t *testing.T) {
	longtest.Computation(t)
	l, now, random := started(config()), time.Unix(1e9, 0), rand.New(rand.NewPCG(1, 1))
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

// BenchmarkChoiceWithMeasuredCalls chooses with measured calls at forty steps of age, for one and for two
// hedges.
func BenchmarkChoiceWithMeasuredCalls(b *testing.B) {
	l, now := started(config()), time.Now()
	of, random := testserver.DistributionT(b, "straggler"), rand.New(rand.NewPCG(1, 1))
	for i := range 20_000 {
		l.PrimaryEnded(now, of.Draw(random), true)
		if i%10 == 0 {
			l.HedgedCall(time.Duration(float64(ms)*(1+0.02*float64(i/10))), of.Draw(random), 1+i%20/10)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Choose(now)
	}
}

// TestAuto_HedgesThatAreCutShort cuts nearly all hedges short, as their primaries answer soon after
// the hedges were sent. The learner must not take such hedges for fast: a hedge takes a second, as
// a primary does.
func TestAuto_HedgesThatAreCutShort(t *testing.T) {
	l, now := started(config()), time.Now()
	l.Run(func(choose func()) { choose() })
	for i := range 1000 {
		l.PrimaryEnded(now, time.Second+time.Duration(i%100)*ms, true)
		l.HedgeEnded(now, time.Duration(1+i%50)*ms, i%100 == 0) // one in a hundred was sent before calls became slow
	}
	l.Choose(now)
	if e := l.Estimate(); e.Choice == nil || e.Choice.PredictedLoad > 0.02 {
		t.Errorf("%+v", e.Choice)
	}
}
