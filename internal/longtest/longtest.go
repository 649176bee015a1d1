// Package longtest decides how much the tests do, and marks those that run apart. Without the flag -hedge.long tests do what
// guards a change, in a minute or two. With it they run at the sizes, and from all the seeds, that their names and the rules
// speak of.
package longtest

import (
	"flag"
	"testing"
)

// Long is the flag: go test ./interceptor -hedge.long. Test binaries that do not import this package do not have it.
// Read it in a test, not while the package's variables are initialized: flags are parsed later.
var Long = flag.Bool("hedge.long", false, "run tests at full size and from all seeds")

// Full is the flag of make test-full: the tables of the documentation, which take an hour.
var Full = flag.Bool("hedge.full", false, "with -hedge.long: run the tables of the documentation, which take an hour")

// Table is short, long if the flag Long is set, or full if Full is set too.
func Table(short, long, full int) int {
	if *Long && *Full {
		return full
	}
	return Size(short, long)
}

// Size is short, or long if the flag is set.
func Size(short, long int) int {
	if *Long {
		return long
	}
	return short
}

// First is the first n of a table's cases, or all if the flag is set.
func First[T any](n int, cases []T) []T { return cases[:Size(n, len(cases))] }

// Only skips a test that is not needed to guard a change, unless the flag is set.
func Only(t testing.TB) {
	t.Helper()
	if !*Long {
		t.Skip("it is not needed to guard every change: run it with -hedge.long")
	}
}

// Simulation marks a test as a simulation, on the first line of its body. The race detector makes one ten times slower and
// finds little in it, since its goroutines take turns. So .ci/tests, which looks for the mark, runs it without the detector,
// and under it only in the long tier. A test of concurrency has no mark.
func Simulation(testing.TB) {}

// Computation marks a test that has one goroutine and a lot to do, in the same place. It never runs under the race detector.
func Computation(testing.TB) {}
