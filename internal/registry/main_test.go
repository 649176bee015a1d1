package registry_test

import (
	"time"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/race"
)

const (
	ms     = time.Millisecond
	target = "dns:///test"
	method = "/pkg.Svc/Get"
)

// learners does something with each learner that a call teaches.
func learners(c *call.Call, teach func(*learn.Learner)) {
	teach(c.Learned.Method)
	if c.Learned.Class != nil {
		teach(c.Learned.Class)
	}
}

// admit asks whether hedge n of a call of which nothing else has happened may be sent.
func admit(c *call.Call, n int) (send bool) {
	return c.Admit(n, n, new(race.Report)).Kind == race.Admitted
}

// book books that a hedge of the call, sent at once, decided it after d.
func book(c *call.Call, d time.Duration) {
	r := race.Report{Winner: 1, Hedges: 1, DecidedAt: d, DeliveredAt: d}
	r.Attempts[0] = race.AttemptReport{CutShort: true}
	r.Attempts[1] = race.AttemptReport{HasEnded: true, EndedAt: d}
	c.Book(&r)
}
