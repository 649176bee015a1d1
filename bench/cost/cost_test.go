package cost

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge/bench/internal/race"
	"github.com/grpchedge/hedge/bench/policy"
)

func TestCost(t *testing.T) {
	if all := contestants; race.Enabled {
		t.Cleanup(func() { contestants = all })
		contestants = slices.DeleteFunc(slices.Clone(all), func(c contestant) bool { return policy.Named(c.policy).Peer || c.policy == policy.FailsafeCost })
	}
	var stdout, log bytes.Buffer
	c := Cost{Concurrency: []int{1, 4}, Duration: time.Second, Slice: 5 * time.Millisecond, Seed: 1}
	if err := c.Run(t.Context(), &stdout, &log); err != nil {
		t.Fatalf("%v\n%s", err, &stdout)
	}
	for _, contestant := range contestants {
		if n := strings.Count(stdout.String(), contestant.label+"  "); n < 2 {
			t.Errorf("%s is in the table %d times, want one for each concurrency:\n%s", contestant.label, n, &stdout)
		}
	}
}

func TestCostRounds(t *testing.T) {
	for _, tc := range []struct {
		duration, slice time.Duration
		concurrency     int
	}{
		{54 * time.Second, 50 * time.Millisecond, 3}, {time.Second, time.Minute, 1}, {10 * time.Second, time.Millisecond, 2},
	} {
		c := Cost{Duration: tc.duration, Slice: tc.slice, Concurrency: make([]int, tc.concurrency)}
		rounds := c.rounds()
		took := time.Duration(rounds*len(contestants)*tc.concurrency) * tc.slice
		if rounds%2 != 1 || took > tc.duration && rounds > 3 {
			t.Errorf("%+v: %d rounds, which take %v", tc, rounds, took)
		}
	}
}

func TestScoreCells(t *testing.T) {
	s := score{label: "x", rates: []float64{900, 1000, 950}, ratios: []float64{0.9, 0.98, 0.95}, wrong: 3}
	want := "16 x 950 1052.6 0.950 0.900–0.980 0.900–0.980  3" // no scheduler, so no hedges
	if got := strings.Join(s.cells(16), " "); got != want {
		t.Errorf("cells %q, want %q", got, want)
	}
}
