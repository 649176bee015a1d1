package call_test

import (
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
)

const (
	ms     = time.Millisecond
	target = "dns:///test"
	method = "/pkg.Svc/Get"
)

// admit asks whether hedge n of a call of which nothing else has happened may be sent, and otherwise after what time to ask
// again; 0 is never.
func admit(c *call.Call, n int) (send bool, again time.Duration) {
	e := c.Admit(n, n, new(race.Report))
	if e.Kind == race.HeldBack {
		again = e.Until - c.Age()
	}
	return e.Kind == race.Admitted, again
}

// book books that a hedge of the call, sent at once, decided it with err after d.
func book(c *call.Call, d time.Duration, err error) {
	r := race.Report{Winner: 1, Hedges: 1, Err: err, DecidedAt: d, DeliveredAt: d}
	r.Attempts[0] = race.AttemptReport{CutShort: true}
	r.Attempts[1] = race.AttemptReport{HasEnded: true, EndedAt: d, Err: err}
	if err != nil {
		r.Attempts[1].End = race.Final
	}
	c.Book(&r)
}

// hedgesKnown is how many hedges of a call's method are known of.
func hedgesKnown(c *call.Call) int64 {
	return int64(c.Learned.Method.Knowledge(time.Now()).Hedges.Total() + 0.5)
}

// configFor is the configuration in force for a method of a target.
func configFor(s *hedge.Scheduler, target, method string) settings.Config {
	c := registry.Of(s).Config()
	return *c.ForTarget(target).ForMethod(&c, method).Config
}
