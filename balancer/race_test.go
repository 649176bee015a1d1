//go:build race

package balancer_test

// bubbleMayDial is false: the race detector of Go 1.26 crashes now and then, inside of itself, where connections are made
// in a bubble again and again, by the timers that bufconn sets to 0. make test-long runs what needs that
// without it.
const bubbleMayDial = false
