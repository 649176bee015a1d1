package hedgetest

import (
	"time"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
)

// Admit asks whether hedge n of a call may be sent before anything else has happened, and counts it as
// sent. If not, again is the time after which to ask again; 0 is never.
func Admit(c *call.Call, n int) (send bool, again time.Duration) {
	e := c.Admit(n, n, &race.Report{Due: c.Age()})
	if e.Kind == race.Admitted {
		c.Sent(n, false)
	}
	if e.Kind == race.HeldBack {
		again = e.Until - c.Age()
	}
	return e.Kind == race.Admitted, again
}

// HedgeWins ends a call by a hedge that was sent at once, and decided it with err after d.
func HedgeWins(c *call.Call, d time.Duration, err error) {
	r := race.Report{Winner: 1, Hedges: 1, Err: err, DecidedAt: d, DeliveredAt: d}
	r.Attempts[0] = race.AttemptReport{CutShort: true}
	r.Attempts[1] = race.AttemptReport{HasEnded: true, EndedAt: d, Err: err}
	if err != nil {
		r.Attempts[1].End = race.Final
	}
	c.Ended(&r)
}

// CutShort ends a call that a hedge won while its primary was unanswered at the given age.
func CutShort(c *call.Call, age time.Duration) {
	r := race.Report{DecidedAt: age, DeliveredAt: age}
	r.Attempts[0].CutShort = true
	c.Ended(&r)
}
