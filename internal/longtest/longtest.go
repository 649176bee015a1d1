// Package longtest sizes the tests by three switches, the first two of them go test's:
//
//   - -short leaves out simulations and long computations.
//   - -race leaves out long computations.
//   - The environment variable HEDGE_TESTS raises the sizes of tests. "long" means the sizes, and
//     all the seeds, that names and rules speak of. "full" means the tables of the documentation.
package longtest

import (
	"fmt"
	"os"
	"testing"
)

const variable = "HEDGE_TESTS"

// size returns short, long or full, whichever HEDGE_TESTS chooses. It reads the variable in tests
// and not before: go test, which keeps results, then sees that they depend on it.
func size[T any](short, long, full T) T {
	switch value := os.Getenv(variable); value {
	case "":
		return short
	case "long":
		return long
	case "full":
		return full
	default:
		panic(fmt.Sprintf(`%s=%q: must be "long", "full" or unset`, variable, value))
	}
}

// Long reports whether HEDGE_TESTS is set.
func Long() bool { return size(false, true, true) }

// Full reports whether HEDGE_TESTS is "full".
func Full() bool { return size(false, false, true) }

// Table is short, long with HEDGE_TESTS=long, or full with HEDGE_TESTS=full.
func Table(short, long, full int) int { return size(short, long, full) }

// Size is short, or long if HEDGE_TESTS is set.
func Size(short, long int) int { return size(short, long, long) }

// First is the first n of a table's cases, or all if HEDGE_TESTS is set.
func First[T any](n int, cases []T) []T { return cases[:Size(n, len(cases))] }

// Only skips a test that is not needed to guard a change, unless HEDGE_TESTS is set.
func Only(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skip("not needed to guard every change: HEDGE_TESTS=long runs it")
	}
}

// Simulation skips a simulation with -short. The race detector makes a simulation ten times slower
// and finds little in it, because its goroutines take turns. So a change is guarded by go test
// -race -short and by go test. A test of concurrency must not call Simulation.
func Simulation(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("a simulation: -short leaves it out")
	}
}

// Computation skips a test in which the race detector finds nothing and takes minutes: one
// goroutine has a lot to do, or pictures are drawn. It skips with -short, and under the race
// detector.
func Computation(t testing.TB) {
	t.Helper()
	if testing.Short() || Race {
		t.Skip("a long computation: -short and -race leave it out")
	}
}
