package figure

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQuantile compares with the definition, counted in whole numbers.
func TestQuantile(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= 2100; n += 1 + n/7 {
		values := make([]int, n)
		for i := range values {
			values[i] = rng.IntN(n) // with ties
		}
		slices.Sort(values)
		for _, perMille := range []int{1, 100, 250, 500, 750, 900, 950, 990, 999, 1000} {
			want := slices.IndexFunc(values, func(v int) bool {
				notAbove := 0
				for _, other := range values {
					if other <= v {
						notAbove++
					}
				}
				return 1000*notAbove >= perMille*n
			})
			if got := Quantile(values, float64(perMille)/1000); got != values[want] {
				t.Fatalf("quantile %d‰ of %d values is %d, want %d", perMille, n, got, values[want])
			}
		}
	}
}

// TestMedianBounds draws from a distribution with a known median and counts how often the bounds
// contain it.
func TestMedianBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{9, 41, 101} {
		const trials = 4000
		held := 0
		for range trials {
			draws := make([]float64, n)
			for i := range draws {
				draws[i] = rng.ExpFloat64()
			}
			slices.Sort(draws)
			const median = 0.6931471805599453 // ln 2
			if low, high := MedianBounds(draws); low <= median && median <= high {
				held++
			}
		}
		if share := float64(held) / trials; share < 0.94 || share > 0.99 {
			t.Errorf("of %d draws the bounds hold the median with probability %.3f, want about 0.95", n, share)
		}
	}
	if low, high := MedianBounds([]float64{7}); low != 7 || high != 7 {
		t.Errorf("bounds of one draw are %v and %v, want the draw", low, high)
	}
}
