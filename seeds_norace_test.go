//go:build !race

package hedge_test

// seeds is how many seeds a simulation is made from; see the file that is built with the race detector.
const seeds = 5

// doCalls is how many calls a test of memory makes.
const doCalls = 1_000_000
