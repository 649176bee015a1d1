package hedge

import (
	"fmt"
	"time"

	"github.com/grpchedge/hedge/internal/engine"
)

// Resets says how many losing attempts of a target are reset on the wire.
//
// When a hedged call is decided, its other attempts are cancelled, for each of which the client sends RST_STREAM. Servers
// and proxies count these frames, and many cut connections that send more than some hundred a minute. A cut fails the
// calls in flight. So a limit is learned for each target. At first every loser is reset. When a connection is cut, calls
// whose method may run twice are sent again at once, up to two times, and resets are limited:
//
//   - If the server says that it was too much (ENHANCE_YOUR_CALM), to half of what was sent before the cut. The limit is
//     raised by half after two minutes, then after four, and so on up to an hour.
//   - If it does not say so, and at least ten resets were sent in the minute before, none is sent for less than a minute. If
//     connections are cut in such pauses too, resets are not to blame, and cuts are ignored for ten minutes or longer. If
//     they are cut again and again after resets and never in a pause, a limit is learned as above. A connection that the
//     server closes in an orderly way within two minutes, so that no call fails, counts like one that is cut. It is noticed by
//     the hedges that use the next one.
//
// When no reset is left, losers run to their end and their answers are dropped: at most 1,000 of a target at a time, each
// for 30 s at most, or until the call's deadline. Those above that are reset all the same. Calls then have their primary on
// a goroutine of its own, which costs a few microseconds a call. Hedging goes on as before.
//
// [WithResetLimit] sets the limit instead.
type Resets struct {
	// Mode is how the limit came about.
	Mode ResetMode
	// Limit is the most resets in any time of Per; both are 0 with ResetsUnlimited.
	Limit int
	Per   time.Duration
	// Since is when Mode or Limit last changed after a cut, and Why says why. They are zero with ResetsUnlimited, unless a
	// limit has ended.
	Since time.Time
	Why   string
	// Left is the number of losers that run to their end now.
	Left int
}

// ResetMode is how the limit of [Resets] came about.
type ResetMode string

const (
	// ResetsUnlimited: every loser is reset.
	ResetsUnlimited ResetMode = "unlimited"
	// ResetsSuspected: none is, for less than a minute, to see whether connections are cut without resets.
	ResetsSuspected ResetMode = "suspected"
	// ResetsLearned: connections were cut because of resets.
	ResetsLearned ResetMode = "learned"
	// ResetsSet: WithResetLimit sets the limit.
	ResetsSet ResetMode = "set"
)

var resetModes = [...]ResetMode{
	engine.ResetsUnlimited: ResetsUnlimited,
	engine.ResetsSuspected: ResetsSuspected,
	engine.ResetsLearned:   ResetsLearned,
	engine.ResetsSet:       ResetsSet,
}

func newResets(r engine.Resets) Resets {
	return Resets{Mode: resetModes[r.Mode], Limit: r.Limit, Per: r.Per, Since: r.Since, Why: r.Why, Left: r.Left}
}

// WithResetLimit sets how many losing attempts of a target are reset on the wire: at most n in any time of per. n is 0 or
// more, and per at least a millisecond. With n = 0, whatever per, a loser is never reset as long as it can be left to run.
// The default is to learn the limit: see [Resets], which also says what happens to the losers that are not reset.
//
// The limit is for all connections to the target together. Servers count for each connection, so a limit that is right for
// one connection is right for many too.
func WithResetLimit(n int, per time.Duration) Option {
	return named("WithResetLimit", func(c *engine.Config) error {
		if n < 0 || per < minResetPer && n > 0 || per < 0 {
			return fmt.Errorf("hedge: WithResetLimit(%d, %v): the number must be at least 0, and the time at least %v", n, per, minResetPer)
		}
		c.ResetLimit = &engine.ResetLimit{N: n, Per: max(per, minResetPer)}
		return nil
	})
}

const minResetPer = time.Millisecond
