package stats

import "time"

// Resets says how many hedges of a target may be sent because its servers count resets. Many servers and proxies cut connections on
// which a client resets more than some hundred streams a minute, which fails the calls in flight. Each hedge makes one loser, which is
// reset. So the limits are limits of hedges. docs/servers.md has the servers.
type Resets struct {
	// Limit is the most hedges in any time of Per, of hedge.WithResetLimit; 0: there is no such limit.
	Limit int
	Per   time.Duration
	// Learned is the most hedges a minute since a server has said, at Since, that there were too many resets (ENHANCE_YOUR_CALM):
	// half of those that it got in the minute before, and an eighth of them more every quarter of an hour. It is lifted at Until,
	// unless a server says so again. 0: none has.
	Learned      int
	Since, Until time.Time
}
