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
