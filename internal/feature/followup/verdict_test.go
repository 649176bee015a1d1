package followup_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/feature/followup"
	"github.com/grpchedge/hedge/internal/longtest"
)

// TestNothingToGain_Never: where attempts are independent, fewer than 1% of runs of ten minutes are ever found to gain
// nothing.
func TestNothingToGain_Never(t *testing.T) {
	longtest.Computation(t)
	for _, d := range []struct {
		name string
		draw distribution
	}{{"lognormal", plain}, {"straggler", straggler}, {"pareto", pareto}, {"queues", independent(queue)}} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			runs, found := longtest.Table(10, 100, 400), 0
			for seed := range runs {
				w := newWorld(uint64(seed+1), d.draw, 200)
				for range 600 {
					if w.run(time.Second); w.m.NothingToGain() {
						found++
						break
					}
				}
			}
			if found > runs/100 {
				t.Errorf("%d of %d runs are found to gain nothing", found, runs)
			}
		})
	}
}

// TestNothingToGain_OneProcessor: where both attempts of a call wait for one processor, there is nothing to gain at most 1.5%
// load from the second minute on. Within two minutes after attempts are independent again, hedging is back; within four
// where their tail is short.
func TestNothingToGain_OneProcessor(t *testing.T) {
	longtest.Computation(t)
	for _, d := range []struct {
		name        string
		draw, apart distribution
		back        time.Duration
	}{
		{"exponential", oneProcessor(queue), independent(queue), 2 * time.Minute},
		{"lognormal", oneProcessor(func(r *rand.Rand) float64 { return lognormal(r, 20, 0.5) }), independent(func(r *rand.Rand) float64 { return lognormal(r, 20, 0.5) }), 4 * time.Minute},
		{"straggler", oneProcessor(queue), straggler, 2 * time.Minute},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			runs, slow, load := longtest.Table(10, 100, 400), 0, 0.0
			var found, back time.Duration
			for seed := range runs {
				w := newWorld(uint64(seed+1), d.draw, 200)
				first := w.until(true)
				w.run(time.Minute - w.now.Sub(start))
				w.calls, w.hedges = 0, 0
				w.run(9 * time.Minute)
				load += float64(w.hedges) / float64(w.calls) / float64(runs)
				if !w.m.NothingToGain() {
					t.Errorf("seed %d: after ten minutes there is something to gain", seed+1)
				}
				w.change(d.apart)
				again := w.until(false)
				if first > 2*time.Minute || again > d.back {
					slow++
				}
				found, back = found+first/time.Duration(runs), back+again/time.Duration(runs)
			}
			t.Logf("found after %v, back after %v, load from the second minute on %.2f%%; slow in %d of %d", found, back, 100*load, slow, runs)
			if load > 0.015 || slow > runs/20 {
				t.Error("too slow")
			}
		})
	}
}

// TestLongest: a loser is followed for 30 s. Where there is nothing to gain, it is followed for ten times what its caller waited.
func TestLongest(t *testing.T) {
	m, now := followup.New(100, 0.9, 1, nil, new(followup.Room)), start
	cut := followup.Call{Share: 1, Wait: 20 * time.Millisecond, Late: true, Hedges: 1, CutShort: true}
	for !m.NothingToGain() && now.Before(start.Add(time.Hour)) {
		now = now.Add(time.Second)
		l := m.Add(now, cut)
		if l.Longest != 30*time.Second {
			t.Fatal(l.Longest)
		}
		m.Followed(now, l, cut.Wait, true)
	}
	if l := m.Add(now, cut); !m.NothingToGain() || l.Longest != 200*time.Millisecond {
		t.Error(m.NothingToGain(), l.Longest)
	}
}
