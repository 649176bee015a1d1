//go:build !race

package hedge_test

// seeds is how many seeds a simulation is made from; see the file that is built with the race detector.
const seeds = 5
