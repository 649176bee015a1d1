package learn_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
)

// follow lets losers of some calls run to their end. What they took is learned in place of the ages at which losers were cut short:
// of those that are followed when they end, and of each of the others what one of those took that was followed and took
// longer than its age.
type follow struct {
	share    float64 // of the calls whose losers are followed
	hedges   bool    // hedges that lose are followed too
	followed [2][]lost
}

// lost is what a followed loser took, and when that was known.
type lost struct{ at, took time.Duration }

const (
	followedFor    = 10 * time.Minute
	enoughFollowed = 30
)

// cut learns from a loser that is cut short at an age, or will when it has ended. It is false if nothing is known of such losers.
func (f *follow) cut(s *simulator, c *simCall, n int, age time.Duration) bool {
	switch {
	case n > 0 && !f.hedges:
		return false
	case c.followed:
		return true
	}
	known := &f.followed[min(n, 1)]
	for len(*known) > 0 && (*known)[0].at < s.now-followedFor {
		*known = (*known)[1:]
	}
	if len(*known) < enoughFollowed {
		return false
	}
	var longer []time.Duration
	for _, l := range *known {
		if l.took > age {
			longer = append(longer, l.took)
		}
	}
	if len(longer) == 0 {
		return false
	}
	s.learn(n, longer[generator(s.seed, c.id, -4).IntN(len(longer))], true)
	return true
}

// draws reports whether the losers of a call are followed: more of them at first, as package followup does.
func (f *follow) draws(seed, id uint64) bool {
	share := f.share
	if len(f.followed[0]) < enoughFollowed {
		share *= 4
	}
	return generator(seed, id, -3).Float64() < share
}

// ended learns from a loser that has run to its end.
func (f *follow) ended(s *simulator, c *simCall, n int) {
	if n > 0 && !f.hedges || !c.followed {
		return
	}
	took := s.now - c.start
	if n > 0 {
		took = s.now - c.sent[n-1]
	}
	f.followed[min(n, 1)] = append(f.followed[min(n, 1)], lost{s.now, took})
	s.learn(n, took, true)
}

// TestFollowed_Choices compares the choices that are made of what followed losers took with those of today: see docs/trigger.md.
func TestFollowed_Choices(t *testing.T) {
	longtest.Computation(t)
	longtest.FullOnly(t)
	const seeds = 30
	workloads := []workload{
		{name: "straggler", distribution: straggler, concurrency: 20},
		{name: "sizes", distribution: sizes(1, .02, 200), rate: 500},
		{name: "sizes 1.5", distribution: sizes(1.5, .02, 200), rate: 500},
		{name: "tenants", distribution: ofRequest(func(r, a *rand.Rand) float64 { // twenty, whose scales are lognormal
			d := 5 * math.Exp(.9*math.Sqrt2*math.Erfinv((float64(r.IntN(20))+.5)/10-1)+.3*a.NormFloat64())
			if chanceOf(a, .03) {
				d *= 8
			}
			return d
		}), rate: 500},
		{name: "half", distribution: ofRequest(func(r, a *rand.Rand) float64 {
			return 5 * math.Exp(.7*r.NormFloat64()+.7*a.NormFloat64())
		}), rate: 500},
		{name: "heavy+2%", distribution: heavy(.02), rate: 500},
	}
	for _, w := range workloads {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			var never, today, far [seeds]float64 // p99 without hedging, p99 and p99.9 as today
			for _, f := range []struct {
				name   string
				share  float64
				hedges bool
			}{
				{"as today", 0, false}, {"all", 1, true}, {"one in twenty", .05, true}, {"one in twenty, of primaries alone", .05, false},
			} {
				var unhedged, hedges, sum, squares, sumFar float64
				for seed := range seeds {
					sim := simulation{
						distribution: w.distribution, calls: 40_000, concurrency: w.concurrency, rate: w.rate, seed: uint64(seed + 1), config: config(),
					}
					if f.share > 0 {
						sim.follow = &follow{share: f.share, hedges: f.hedges}
					}
					done := sim.run().done[warmedUp:]
					p99, p999 := tail(done, .99), tail(done, .999)
					if f.share == 0 {
						today[seed], far[seed] = p99, p999
						sim.config.MaxHedges = 0
						never[seed] = tail(sim.run().done[warmedUp:], .99)
					}
					ratio := p99 / today[seed]
					sum, squares, sumFar = sum+ratio, squares+ratio*ratio, sumFar+p999/far[seed]
					unhedged, hedges = unhedged+p99/never[seed], hedges+load(done)
				}
				mean := sum / seeds
				t.Logf("%s: p99 %.3f of the unhedged, %.3f ± %.3f of today's; p99.9 %.3f of today's; load %.2f%%", f.name,
					unhedged/seeds, mean, math.Sqrt(max(squares/seeds-mean*mean, 0)/seeds), sumFar/seeds, hedges/seeds)
			}
		})
	}
}
