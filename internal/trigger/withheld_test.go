package trigger_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/testserver/worlds"
)

// TestWithheld_IsLate: among stragglers, of which a few in a thousand exceed 100 ms, no hedge that is
// withheld is lost: with a straggler of 2 s, no call takes as long. One call in a thousand has a hedge
// withheld, so that a client of few calls loses little.
func TestWithheld_IsLate(t *testing.T) {
	w := worlds.World{Rate: 200, Calls: 20_000, Medians: []float64{5}, First: -1,
		Law: func(seed, id uint64, attempt int, at time.Duration) time.Duration {
			if attempt == 0 && id%20 == 0 {
				return 2 * time.Second
			}
			return 5 * ms
		}}
	s := w.Run(1, worlds.Auto)
	withheld, early := 0, 0
	for i, c := range s.Calls[1000:] {
		if c.Took > 50*ms {
			withheld++
			if i < 4000 {
				early++
			}
		}
		if c.Took > time.Second {
			t.Errorf("a call took %v: its hedge was lost", c.Took)
		}
	}
	if withheld < 5 || withheld > 40 || early > 8 {
		t.Errorf("%d calls took as long as withheld hedges, want 5 to 40, and %d of the first, want 8 at most", withheld, early)
	}
}
