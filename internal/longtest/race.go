//go:build race

package longtest

const race = true // the race detector is on
