package main

import (
	"math"
	"strconv"
)

// quantile returns the element of rank ⌈q·n⌉ of n sorted ones: the least that a share q of them does not
// exceed. 0 < q ≤ 1; there must be at least one element.
func quantile[T any](sorted []T, q float64) T {
	// The subtraction keeps a product that should be whole, such as 0.999·1000, from being rounded up.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// medianBounds returns the elements between which the median of what n sorted ones were drawn from lies with
// a probability of about 95%: those of ranks n/2 - 0.98·√n and n/2 + 0.98·√n + 1, as the number of draws below the true median is
// binomial, whatever the distribution.
func medianBounds[T any](sorted []T) (low, high T) {
	n := float64(len(sorted))
	half := 1.96 / 2 * math.Sqrt(n)
	at := func(rank float64) T { return sorted[min(max(int(math.Round(rank)), 1), len(sorted))-1] }
	return at(n/2 - half), at(n/2 + half + 1)
}

// tails are the percentiles that a latency table shows.
var tails = []float64{0.50, 0.90, 0.95, 0.99, 0.999}

// percentileName writes a quantile as a percentile: 0.999 as p99.9.
func percentileName(q float64) string {
	return "p" + strconv.FormatFloat(math.Round(q*1e6)/1e4, 'f', -1, 64)
}
