package workload

// Clock selects real or virtual time for a run.
type Clock string

const (
	RealClock    Clock = "real"    // loopback sockets and the time of day
	VirtualClock Clock = "virtual" // in memory, where time passes only while nothing runs
)

// Place names where a run by that clock takes place.
func (c Clock) Place() string {
	if c == RealClock {
		return "loopback"
	}
	return "virtual time"
}
