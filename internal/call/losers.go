package call

import (
	"time"

	"github.com/grpchedge/hedge/internal/codeset"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/stats"
)

// Lost implements [race.Policy].
func (c *Call) Lost(losers, may race.Attempts) (left race.Attempts) {
	if c.OffWire {
		return 0
	}
	left = c.settings.Resets.Lost(losers, may, time.Now())
	if n := left.Count(); n > 0 {
		c.method.Counters.Update(func(s *stats.Counts) { s.Left += int64(n) })
	}
	return left
}

// LeftEnded implements [race.Policy].
func (c *Call) LeftEnded() { c.settings.Resets.LeftEnded() }

// Watched reports whether header, trailer and peer of the call's primary are of interest, should it fail.
func (c *Call) Watched() bool { return !c.OffWire && c.settings.Resets.Watches(c.Start) }

// MayRepeat implements [race.Policy]. The error alone proves no cut, so attempts are watched from now on.
func (c *Call) MayRepeat(err error) bool {
	now := time.Now()
	if c.OffWire || !c.settings.Resets.Suspects(err, now) {
		return false
	}
	c.settings.Resets.Watch(now)
	return true
}

// Follow implements [race.Policy]. Where a connection has fallen silent, patient probes find out whether it answers. A followed
// loser's answer would end the silence, and the next one would begin, before the first of them is sent.
func (c *Call) Follow(hedges int) bool {
	if c.FollowUp.Share == 0 {
		return false
	}
	if c.Record.OnSilent() {
		c.FollowUp.Share = 0 // as if it had not been drawn
		return false
	}
	c.loser = c.settings.FollowUp.CutShort(&c.Call, hedges, time.Now())
	return c.loser != nil
}

// Followed implements [race.Policy]. A good answer is still to come after a poor one, as after a failure.
func (c *Call) Followed(err error, poor bool) {
	c.settings.FollowUp.Followed(time.Now(), c.loser, c.Age(), !poor && codeset.Answers.HasStatus(err))
}
