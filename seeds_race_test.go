//go:build race

package hedge_test

// seeds is how many seeds a simulation is made from. The race detector makes it some ten times slower; make test runs
// simulations once more without it, from all seeds.
const seeds = 1

// doCalls is how many calls a test of memory makes.
const doCalls = 50_000
