package stats

import "time"

// Resets is the limit of a target's hedges where servers count resets. Many servers and proxies
// close a connection on which a client resets more than a few hundred streams per minute, and the
// calls in flight fail. Each hedge makes one loser, which is reset, so a limit of resets is a limit
// of hedges. docs/servers.md lists the servers.
type Resets struct {
	// Limit is the maximum number of hedges in any interval of Per, from hedge.WithResetLimit; 0
	// without the option.
	Limit int
	Per   time.Duration
	// Learned is the maximum number of hedges per minute, since a server closed a connection at
	// Since; 0 if no limit is in force. The limit ends at Until, unless a server closes a
	// connection again.
	//
	// If the server reports the reason (ENHANCE_YOUR_CALM), Learned starts at half of the hedges of
	// the minute before, and doubles in an hour. If connections are closed twice within a minute
	// without a reason, at five hedges per second or more, it starts at half of the hedges of the
	// second before, and doubles in four minutes.
	Learned      int
	Since, Until time.Time
}
