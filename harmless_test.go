package hedge_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/model"
)

// The minutes of a run. Hedging is compared in the last minute of calm and in the one that begins when the effects of faults
// should be over.
const (
	calm    = 2 * time.Minute // before the first fault
	faulty  = 2 * time.Minute
	effects = 5 * time.Minute  // how long a fault may have an effect
	guarded = 15 * time.Minute // the same, where the guard has found hedges guilty: see docs/guard.md
)

// TestRule21_NeverWorseThanPlain draws servers, faults, options and traffic, and makes the same calls without hedging beside
// them. Play one run again with -model.seed.
func TestRule21_NeverWorseThanPlain(t *testing.T) {
	longtest.Simulation(t)
	var mu sync.Mutex
	var all tally
	t.Run("seeds", func(t *testing.T) {
		for seed := range (model.Counts{Short: 2, Long: 20, Full: 80}).Seeds() {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := runWorld(t, seed)
					mu.Lock()
					defer mu.Unlock()
					all.add(w.tally)
					if t.Failed() {
						t.Logf("replay with: -run Rule21 -model.seed=%d\n%v", seed, w)
					}
				})
			})
		}
	})
	t.Logf("%+v", all)
	if all.before.hedges == 0 || all.extra == 0 {
		t.Error("the test has come to nothing")
	}
	if all.calls > 100_000 {
		all.check(t)
	}
}

// minute is what happened in a minute.
type minute struct {
	calls, hedges int64
	primaries     [maxBackends]int64 // as they arrived
}

func (m minute) share() float64 { return float64(m.hedges) / float64(max(m.calls, 1)) }

// shareOf is the share of the primaries that a backend got.
func (m minute) shareOf(backend int) float64 {
	sum := int64(0)
	for _, n := range m.primaries {
		sum += n
	}
	return float64(m.primaries[backend]) / float64(max(sum, 1))
}

// tally is what a run came to.
type tally struct {
	before, after       minute
	calls               int64
	extra               int
	failed, plainFailed int64
}

func (a *tally) add(b tally) {
	a.before.calls, a.before.hedges = a.before.calls+b.before.calls, a.before.hedges+b.before.hedges
	a.after.calls, a.after.hedges = a.after.calls+b.after.calls, a.after.hedges+b.after.hedges
	a.calls, a.extra = a.calls+b.calls, a.extra+b.extra
	a.failed, a.plainFailed = a.failed+b.failed, a.plainFailed+b.plainFailed
}

// check checks what many runs came to. In one of them, chance hides what may be missing.
func (a *tally) check(t *testing.T) {
	if before, after := a.before.share(), a.after.share(); after < 0.95*before {
		t.Errorf("%.2f%% of calls were hedged before the faults, %.2f%% after", 100*before, 100*after)
	}
	if float64(a.failed) > float64(a.plainFailed)+0.001*float64(a.calls) {
		t.Errorf("%d calls of %d failed, %d without hedging", a.failed, a.calls, a.plainFailed)
	}
}

// runWorld makes the calls of a seed with hedging, then without, and checks what came of them.
func runWorld(t *testing.T, seed uint64) *world {
	w := drawWorld(seed)
	hedged := w.start(t, w.hedging(t))
	hedged.until(calm - time.Minute)
	w.before = hedged.minute()
	hedged.until(calm + faulty + effects)
	if w.isGuarded() {
		hedged.until(calm + faulty + guarded)
	}
	w.after = hedged.minute()
	hedged.end(t)
	w.calls, w.failed, w.extra = hedged.calls.Load(), hedged.failed.Load(), w.book.extra()

	plain := w.start(t, nil)
	plain.until(hedged.lasted)
	plain.end(t)
	w.plainFailed = plain.failed.Load()
	if plain.calls.Load() != w.calls {
		t.Errorf("%d calls hedged and %d plain", w.calls, plain.calls.Load())
	}
	w.check(t)
	return w
}

func (w *world) check(t *testing.T) {
	if over, at := w.book.over(w.share); over > 1e-6 {
		t.Errorf("attempts beyond the first cost %v more than the bound at %v", over, at)
	}
	w.checkFailures(t)
	w.checkHedging(t)
	w.checkBackends(t)
}

// checkFailures allows a tenth of a point more failures than without hedging. The guard must see some failures of each quota
// before it knows of it, however few calls there are. In a run of 40,000 calls, as docs/guard.md has it, a tenth of a point is
// 40 of them; such a run has a quarter of these calls.
func (w *world) checkFailures(t *testing.T) {
	most := float64(w.plainFailed) + 0.001*float64(w.calls)
	for _, f := range w.faults {
		if f.kind == "quota" {
			most += 30
		}
	}
	if float64(w.failed) > most {
		t.Errorf("%d calls of %d failed, %d without hedging", w.failed, w.calls, w.plainFailed)
	}
}

// checkHedging compares the hedges of the two minutes. Whether a call is slow enough for a hedge is chance, so that of n
// hedges the standard deviation is about √n, and that of a difference is that of both. One run in ten thousand has four of
// them. What is learned of a thousand calls varies too: by a fifth is allowed.
func (w *world) checkHedging(t *testing.T) {
	was := w.before.share() * float64(w.after.calls)
	chance := 4 * math.Sqrt(was*(1+float64(w.after.calls)/float64(max(w.before.calls, 1))))
	if is := float64(w.after.hedges); is < 0.8*was-chance {
		t.Errorf("%.2f%% of %d calls were hedged before the faults, %.2f%% of %d after", 100*w.before.share(), w.before.calls,
			100*w.after.share(), w.after.calls)
	}
}

// checkBackends wants each backend to have its share of primaries. With round_robin alone that is not always a fair one:
// a hedge takes the turn of another backend, and where most calls to a backend that is farther away have hedges, that backend
// gets the turn after it too. So a share is no smaller than it was before the faults.
func (w *world) checkBackends(t *testing.T) {
	for b := range w.backends {
		was, is := min(w.before.shareOf(b), 1/float64(w.backends)), w.after.shareOf(b)
		if is < 0.8*was {
			t.Errorf("backend %d had %.0f%% of primaries before the faults and has %.0f%% after", b, 100*was, 100*is)
		}
	}
}

// chance is whether something of a probability is so.
func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

// oneOf draws one of the values.
func oneOf[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }
