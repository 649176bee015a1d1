package trigger_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/budget"
	"github.com/grpchedge/hedge/internal/longtest"
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

// TestRule15_AChoiceIsMadeOnceASecond counts the choices during a minute of calls.
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
