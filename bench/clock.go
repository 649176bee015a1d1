package main

// clock is what a run is measured by.
type clock string

const (
	realClock    clock = "real"    // loopback sockets and the time of day
	virtualClock clock = "virtual" // in memory, where time passes only while nothing runs
)

// place says where the calls of a run by that clock go.
func (c clock) place() string {
	if c == realClock {
		return "loopback"
	}
	return "virtual time"
}
