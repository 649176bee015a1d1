//go:build !race

package balancer_test

// bubbleMayDial says that connections may be made in a bubble again and again; see the file for the race detector.
const bubbleMayDial = true
