// Package figure computes percentiles of sorted values and formats figures for tables and pictures.
package figure

import (
	"math"
	"strconv"
)

// Quantile returns the element of rank ⌈q·n⌉ of n sorted ones: the smallest element that at least a
// share q of them do not exceed. 0 < q ≤ 1; there must be at least one element.
func Quantile[T any](sorted []T, q float64) T {
	// Without the subtraction, a product that should be whole, such as 0.999·1000, may be rounded
	// up.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// MedianBounds returns bounds of the median of the distribution that the n sorted elements were
// drawn from. They hold it with a probability of about 95%, whatever the distribution: they are the
// elements of ranks n/2 - 0.98·√n and n/2 + 0.98·√n + 1, because the number of draws below the true
// median is binomial.
func MedianBounds[T any](sorted []T) (low, high T) {
	n := float64(len(sorted))
	half := 1.96 / 2 * math.Sqrt(n)
	at := func(rank float64) T { return sorted[min(max(int(math.Round(rank)), 1), len(sorted))-1] }
	return at(n/2 - half), at(n/2 + half + 1)
}

// Tails are the percentiles that a latency table shows.
var Tails = []float64{0.50, 0.90, 0.95, 0.99, 0.999}

// PercentileName writes a quantile as a percentile: 0.999 as p99.9.
func PercentileName(q float64) string {
	return "p" + strconv.FormatFloat(math.Round(q*1e6)/1e4, 'f', -1, 64)
}
