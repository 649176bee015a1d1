//go:build !race

package longtest

// Race reports whether the race detector is on.
const Race = false
