package guard_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/guard"
	"github.com/grpchedge/hedge/internal/longtest"
)

const second = time.Second

// client is a target's calls and a guard: calls a second, each of which earns a tenth of a hedge, in steps of virtual time.
type client struct {
	guard  guard.Guard
	now    time.Time
	calls  float64
	rate   float64
	wanted float64 // hedges a call; 0.1 is all that the budget pays for
}

func newClient() *client {
	return &client{now: time.Unix(1_000_000, 0), rate: 100, wanted: 0.1}
}

// Earned and Burst make it a guard.Budget.
func (c *client) Earned() float64         { return c.calls / 10 }
func (c *client) Burst(time.Time) float64 { return 2 * c.rate / 10 }

// pass lets time go by in which every hedge is asked for. It returns what share of them was sent.
func (c *client) pass(d time.Duration, each func(sent bool)) float64 {
	asked, sent := 0, 0
	for end := c.now.Add(d); c.now.Before(end); {
		c.now = c.now.Add(time.Duration(float64(second) / (c.rate * c.wanted)))
		c.calls += 1 / c.wanted
		asked++
		ok := c.guard.Admits(c.now, c)
		if ok {
			sent++
		}
		if each != nil {
			each(ok)
		}
	}
	return float64(sent) / float64(asked)
}

func (c *client) exhausted() { c.guard.Exhausted(c.now, c) }

func (c *client) failed() { c.guard.Failed(c.now, c) }

func (c *client) state() guard.State { return c.guard.State(c.now, c) }

func near(got, want, tolerance float64) bool { return got >= want-tolerance && got <= want+tolerance }

// TestGuard_ExhaustedCutsTheShare: at once, for five seconds altogether, and then by half for each.
func TestGuard_ExhaustedCutsTheShare(t *testing.T) {
	for _, tc := range []struct {
		name     string
		failures int
		share    float64
	}{
		{"none", 0, 1},
		{"one", 1, 0.5},
		{"three", 3, 0.125},
		{"many", 100, 1.0 / 64},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newClient()
			c.pass(10*second, nil)
			began := c.now
			for range tc.failures {
				c.exhausted()
			}
			if tc.failures == 0 {
				if sent := c.pass(time.Minute, nil); sent != 1 || c.state() != (guard.State{Share: 1}) {
					t.Errorf("%v of hedges are sent; %+v", sent, c.state())
				}
				return
			}
			if sent := c.pass(5*second-100*time.Millisecond, nil); sent != 0 {
				t.Errorf("%v of hedges are sent in the pause", sent)
			}
			if got := c.state(); got.Share != 0 || got.Reason != guard.Exhausted || !got.Since.Equal(began) {
				t.Errorf("in the pause: %+v", got)
			}
			c.pass(200*time.Millisecond, nil)
			if got := c.state(); !near(got.Share, tc.share, 0.001) {
				t.Errorf("after the pause the share is %v, want %v", got.Share, tc.share)
			}
			if sent := c.pass(time.Minute, nil); !near(sent, tc.share+0.05, 0.01) {
				t.Errorf("%v of hedges are sent in the first minute, want about %v", sent, tc.share+0.05)
			}
			c.pass(10*time.Minute, nil)
			if sent := c.pass(time.Minute, nil); sent != 1 || c.state() != (guard.State{Share: 1}) {
				t.Errorf("ten minutes later %v of hedges are sent: %+v", sent, c.state())
			}
		})
	}
}

// TestGuard_ExhaustedByChance: where such failures come without hedges as well, hedging is back after a while.
func TestGuard_ExhaustedByChance(t *testing.T) {
	for _, tc := range []struct {
		name      string
		perSecond float64
	}{
		{"five a second", 5},
		{"one in 2 s", 0.5},
		{"one in 20 s", 0.05},
		{"one in 10 minutes", 1.0 / 600},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var late []float64
			for seed := range uint64(longtest.Size(3, 40)) {
				random := rand.New(rand.NewPCG(seed, 1))
				c := newClient()
				step := func(bool) {
					for n := tc.perSecond / (c.rate * c.wanted); n > 0; n-- {
						if random.Float64() < n {
							c.exhausted()
						}
					}
				}
				c.pass(40*time.Minute, step)
				late = append(late, c.pass(20*time.Minute, step))
			}
			sum := 0.0
			for _, share := range late {
				sum += share
			}
			if mean := sum / float64(len(late)); mean < 0.6 {
				t.Errorf("%.2f of hedges are sent in the last third of an hour: %.2f", mean, late)
			}
		})
	}
}

// causes are reasons for which calls fail that have nothing to do with hedges, by the time and whether hedges are sent.
var causes = []struct {
	name  string
	fails func(c *client, random *rand.Rand) int // in a step
}{
	{"one in twenty", func(c *client, r *rand.Rand) int { return binomial(r, 10, 0.05) }},
	{"one in a thousand", func(c *client, r *rand.Rand) int { return binomial(r, 10, 0.001) }},
	{"bunches", func(c *client, r *rand.Rand) int { return 20 * binomial(r, 1, 0.001) }},
	{"half a minute of every five", func(c *client, r *rand.Rand) int {
		if c.now.Unix()%300 < 30 {
			return binomial(r, 10, 0.5)
		}
		return 0
	}},
	{"ever more", func(c *client, r *rand.Rand) int { return binomial(r, 10, min(0.5, c.calls/1e6)) }},
}

func binomial(r *rand.Rand, n int, p float64) (k int) {
	for range n {
		if r.Float64() < p {
			k++
		}
	}
	return k
}

// TestGuard_FailuresByChance: what has nothing to do with hedges costs them a tenth of the time at most, and at most few
// verdicts are wrong.
func TestGuard_FailuresByChance(t *testing.T) {
	hours := longtest.Size(1, 24)
	for _, tc := range causes {
		t.Run(tc.name, func(t *testing.T) {
			wrong := 0
			seeds := uint64(longtest.Size(1, 10))
			for seed := range seeds {
				random, c := rand.New(rand.NewPCG(seed, 2)), newClient()
				was, failures := guard.None, 0
				step := func(bool) {
					n := tc.fails(c, random)
					for failures += n; n > 0; n-- {
						c.failed()
					}
				}
				if first := c.pass(10*time.Minute, step); first < 0.9 {
					t.Errorf("seed %d: %.3f of hedges are sent in the first ten minutes", seed, first)
				}
				sum := 0.0
				for range hours * 60 {
					sum += c.pass(time.Minute, step)
					if is := c.state().Reason; is == guard.Guilty && was != is {
						wrong++
					}
					was = c.state().Reason
				}
				if share := sum / float64(hours*60); share < 0.9 || failures == 0 {
					t.Errorf("seed %d: %.3f of hedges are sent, with %d failures", seed, share, failures)
				}
			}
			if most := 1 + int(seeds)*hours/12; wrong > most {
				t.Errorf("%d wrong verdicts in %d hours, want at most %d", wrong, hours*int(seeds), most)
			}
		})
	}
}

// TestGuard_FailuresOfHedging: where more calls fail with hedges, they become few within minutes, and stay few for ever longer.
func TestGuard_FailuresOfHedging(t *testing.T) {
	for _, tc := range []struct {
		name          string
		with, without float64 // shares of calls that fail
		within        time.Duration
	}{
		{"one in fifty, none without", 0.02, 0, 15 * time.Minute},
		{"one in 200, none without", 0.005, 0, 40 * time.Minute},
		{"one in ten, one in twenty without", 0.1, 0.03, 30 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for seed := range uint64(longtest.Size(1, 20)) {
				random, c := rand.New(rand.NewPCG(seed, 3)), newClient()
				var sentLately float64 // hedges in the last half second, as a share
				step := func(sent bool) {
					sentLately *= 0.95
					if sent {
						sentLately += 0.05
					}
					// A server that bears half of the hedges.
					p := tc.without + (tc.with-tc.without)*max(0, 2*sentLately-1)
					for range binomial(random, 10, p) {
						c.failed()
					}
				}
				began := c.now
				for c.state().Reason != guard.Guilty && c.now.Sub(began) < 2*tc.within {
					c.pass(second, step)
				}
				took := c.now.Sub(began)
				t.Logf("seed %d: found after %v", seed, took)
				if took > tc.within {
					t.Errorf("seed %d: found after %v, want at most %v", seed, took, tc.within)
				}
				c.pass(time.Hour, step)
				if share := c.pass(time.Duration(longtest.Size(1, 3))*time.Hour, step); share > 0.7 {
					t.Errorf("seed %d: %.2f of hedges are sent in the hours after", seed, share)
				}
			}
		})
	}
}

// TestGuard_Concurrently: under the race detector, and no more is admitted than the share allows.
func TestGuard_Concurrently(t *testing.T) {
	c := newClient()
	c.exhausted()
	c.pass(5*second+second/10, nil)
	var group sync.WaitGroup
	var mu sync.Mutex
	admitted := 0
	for range 8 {
		group.Go(func() {
			for range 1000 {
				if c.guard.Admits(c.now, c) {
					mu.Lock()
					admitted++
					mu.Unlock()
				}
				c.guard.Failed(c.now, c)
				c.guard.State(c.now, c)
			}
		})
	}
	group.Wait()
	if admitted > 2 {
		t.Errorf("%d hedges at one moment", admitted)
	}
	c.guard.GiveBack()
	if !c.guard.Admits(c.now, c) {
		t.Error("a hedge that was given back is not admitted")
	}
}
