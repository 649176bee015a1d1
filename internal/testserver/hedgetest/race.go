package hedgetest

import (
	"time"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
)

// Admit asks whether hedge n of a call may be sent before anything else has happened, and counts it
// as sent. If not, again is the time after which to ask again; 0 is never.
func Admit(c *call.Call, n int) (send bool, again time.Duration) {
	e := c.Admit(n, n, &race.State{Due: c.Age()})
	if e.Kind == race.Admitted {
		c.Sent(n, race.Slow)
	}
	if e.Kind == race.HeldBack {
		again = e.Until - c.Age()
	}
	return e.Kind == race.Admitted, again
}

// CutShort ends a call that a hedge won while its primary was unanswered at the given age.
func CutShort(c *call.Call, age time.Duration) {
	r := race.State{DecidedAt: age, DeliveredAt: age}
	r.Attempts[0].CutShort = true
	c.Ended(&r)
}
