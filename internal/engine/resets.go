package engine

import (
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/feature/resets"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/stats"
)

// OffWire says that the attempts of the call are no streams of its target's connections, as those of hedge.Do: losers are
// cancelled, and nothing is known of resets.
func (c *Call) OffWire() { c.offWire = true }

// Lost implements [race.Policy].
func (c *Call) Lost(losers, may race.Attempts) (left race.Attempts) {
	if c.offWire {
		return 0
	}
	left = c.method.target.resets.Lost(losers, may, time.Now())
	if n := left.Count(); n > 0 {
		c.method.counters.update(func(s *stats.Counts) { s.Left += int64(n) })
	}
	return left
}

// LeftEnded implements [race.Policy].
func (c *Call) LeftEnded() { c.method.target.resets.LeftEnded() }

// mustWaitForReset reports whether a hedge must wait because its primary, which cannot be left, could not be reset if the hedge
// won. A call that began before resets were limited waits for up to three times its delay, because its primary may hang. A call
// that cannot run detached, because its attempts share the request, waits as long as there is no reset.
func (c *Call) mustWaitForReset(now time.Time) bool {
	soon := now.Sub(c.start) < 3*c.delay
	return !c.offWire && (soon || c.detached) && c.method.target.resets.Spent(now)
}

// Watched reports whether header, trailer and peer of the call's primary are of interest, should it fail.
func (c *Call) Watched() bool { return !c.offWire && c.method.target.resets.Watches(c.start) }

// MayRepeat implements [race.Policy].
func (c *Call) MayRepeat(err error) bool {
	now, r := time.Now(), &c.method.target.resets
	if c.offWire || !r.Suspects(err, now) {
		return false
	}
	r.Watch(now)
	return true
}

// cut says in e whether an attempt that failed with err may have lost its connection, and whether resets are to blame.
func (c *Call) cut(e *race.Event, err error, seen race.Seen) {
	kind := resets.CutOf(err)
	if e.Cut = !c.offWire && kind != resets.None && (seen.Peer == nil || seen.Nothing()); !e.Cut {
		return
	}
	// An attempt that was not watched has the state of the connection for evidence. With several connections, it may be ready.
	ended := seen.Nothing() || seen.Peer == nil && c.conn != nil && c.conn.GetState() != connectivity.Ready
	if e.Repeat = ended && c.method.target.resets.Cut(kind, c.start, time.Now()); kind == resets.NoReason {
		e.Conn = seen.Connection()
	}
}
