package trigger_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver"
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
		{name: "nothing", before: usual, since: usual, n: 5000, m: 1000},
		{name: "nothing, from the fewest calls", before: usual, since: usual, n: 50, m: 60},
		{name: "an outage", before: usual, since: later, n: 5000, m: 60, want: "slower"},
		{name: "its end", before: later, since: usual, n: 5000, m: 60, want: "faster"},
		{name: "an outage, from a few calls", before: usual, since: later, n: 5000, m: 16, want: "slower"},
		{name: "too few to tell", before: usual, since: later, n: 5000, m: 8},
		{name: "nothing before", before: usual, since: later, m: 1000},
		{name: "a base four times as long", before: usual, n: 5000, m: 200, want: "slower",
			since: testserver.LogNormal(20*ms, 8*ms)},
		{name: "a base a third as long again", before: usual, n: 5000, m: 200,
			since: testserver.LogNormal(6650*time.Microsecond, 2650*time.Microsecond)},
		{name: "a quarter of the base, from few calls", before: usual, n: 1000, m: 20, want: "faster",
			since: testserver.LogNormal(1250*time.Microsecond, 500*time.Microsecond)},
		{name: "one in twenty more is slow", before: usual, n: 5000, m: 1000,
			since: testserver.Straggler(testserver.LogNormal(5*ms, 2*ms), 0.10, 10)},
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
