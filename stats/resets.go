package stats

import "time"

// Resets is the limit of a target's hedges where servers count resets. Many servers and proxies cut a
// connection on which a client resets more than some hundred streams a minute, and the calls in flight
// fail. Each hedge makes one loser, which is reset, so a limit of resets is a limit of hedges.
// docs/servers.md lists the servers.
type Resets struct {
	// Limit is the most hedges in any time of Per, by hedge.WithResetLimit. It is 0 without that option.
	Limit int
	Per   time.Duration
	// Learned is the most hedges a minute, since a server has cut a connection at Since. It is 0 if no
	// limit is in force. Until is when it is lifted, unless a server cuts a connection again.
	//
	// If the server gives the reason (ENHANCE_YOUR_CALM), Learned begins at half of the hedges of the
	// minute before the cut, and doubles in an hour. If connections are cut twice within a minute without
	// a reason, while at least five hedges a second are sent, it begins at half of the hedges of the second
	// before the cut, and doubles in four minutes.
	Learned      int
	Since, Until time.Time
}
