package stats

import "time"

// Resets says how many losing attempts of a target are reset on the wire.
//
// When a hedged call is decided, its other attempts are reset: the client sends RST_STREAM. Many servers and proxies cut
// connections that send more than some hundred of these a minute, which fails the calls in flight. If a server says that this
// is the reason (ENHANCE_YOUR_CALM), no loser of the target is reset for ten minutes. Losers then run to their end, at most
// 1,000 of a target at a time, each for 30 s at most, or until the call's deadline. docs/servers.md has the servers.
type Resets struct {
	Mode ResetMode
	// Limit is the most resets in any time of Per, of hedge.WithResetLimit.
	Limit int
	Per   time.Duration
	// Since and Until are when the server said that there were too many, and until when that counts. Meanwhile none is sent,
	// unless Limit says how many.
	Since, Until time.Time
	// Left is the number of losers that now run to their end instead of being reset.
	Left int
}

// ResetMode is how [Resets] are limited.
type ResetMode string

const (
	// ResetsUnlimited: every loser is reset.
	ResetsUnlimited ResetMode = "unlimited"
	// ResetsLearned: none is, because the server said that there were too many.
	ResetsLearned ResetMode = "learned"
	// ResetsSet: hedge.WithResetLimit sets the limit.
	ResetsSet ResetMode = "set"
)
