package sketch_test

import (
	"math"
	"testing"

	"github.com/grpchedge/hedge/internal/sketch"
)

// TestDraws checks that the share of draws below a probability is that probability.
func TestDraws(t *testing.T) {
	var e sketch.Draws
	for _, share := range []float64{0.5, 0.1, 1.0 / 64} {
		n := 0
		for range 1000 {
			if e.Next() < share {
				n++
			}
		}
		if want := 1000 * share; math.Abs(float64(n)-want) > 3 {
			t.Errorf("%d of 1000 numbers are below %v", n, share)
		}
	}
}
