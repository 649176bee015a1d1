package draw_test

import (
	"math"
	"testing"

	"github.com/grpchedge/hedge/internal/draw"
)

// TestEven: as many are below a share as the share says, in any row of them.
func TestEven(t *testing.T) {
	var e draw.Even
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
