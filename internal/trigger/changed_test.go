package trigger_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	"github.com/grpchedge/hedge/internal/testserver/worlds"
	"github.com/grpchedge/hedge/internal/trigger"
)

func TestChanged(t *testing.T) {
	usual := testserver.DistributionT(t, "straggler")
	later := testserver.Add(usual, testserver.Constant(time.Second))
	for _, tc := range []struct {
		name          string
		before, since testserver.Distribution
		n, m          int
		want          string
	}{
		{"nothing", usual, usual, 5000, 1000, ""},
		{"nothing, from the fewest calls", usual, usual, 50, 60, ""},
		{"an outage", usual, later, 5000, 60, "slower"},
		{"its end", later, usual, 5000, 60, "faster"},
		{"an outage, from a few calls", usual, later, 5000, 16, "slower"},
		{"too few to tell", usual, later, 5000, 8, ""},
		{"nothing before", usual, later, 0, 1000, ""},
		{"a base four times as long", usual, testserver.LogNormal(20*ms, 8*ms), 5000, 200, "slower"},
		{
			"a base a third as long again", usual,
			testserver.LogNormal(6650*time.Microsecond, 2650*time.Microsecond), 5000, 200, "",
		},
		{
			"a quarter of the base, from few calls", usual,
			testserver.LogNormal(1250*time.Microsecond, 500*time.Microsecond), 1000, 20, "faster",
		},
		{
			"one in twenty more is slow", usual,
			testserver.Straggler(testserver.LogNormal(5*ms, 2*ms), 0.10, 10), 5000, 1000, "",
		},
	} {
		for seed := range uint64(longtest.Size(5, 100)) {
			slower, faster := trigger.Changed(observed(tc.before, tc.n, 2*seed),
				observed(tc.since, tc.m, 2*seed+1))
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

// An outage and its end are detected from a few calls, however low the rate.
func TestChangeOfDistribution_AtFewCalls(t *testing.T) {
	for _, every := range longtest.First(1, []time.Duration{time.Second, 200 * ms, 5 * time.Second}) {
		l, at := manual(config())
		random := simulation.Generator(1, 1, 1)
		usual := testserver.DistributionT(t, "straggler")
		calls := func(n int, plus time.Duration) *trigger.Estimate {
			for range n {
				at = at.Add(every)
				l.EstimateFor(at)
				d := usual.Draw(random) + plus
				l.PrimaryEnded(at.Add(d), d, true)
			}
			return l.Estimate()
		}
		if e := calls(longtest.Size(400, 1500), 0); e.Median > 10*ms {
			t.Fatalf("every %v: median %v", every, e.Median)
		}
		if e := calls(120, time.Second); e.Median < 900*ms {
			t.Errorf("every %v: median %v after 120 calls of an outage", every, e.Median)
		}
		if e := calls(240, 0); e.Median > 10*ms {
			t.Errorf("every %v: median %v after 240 calls since its end", every, e.Median)
		}
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
