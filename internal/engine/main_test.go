package engine_test

import (
	"time"

	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/race"
)

const (
	ms     = time.Millisecond
	target = "dns:///test"
	method = "/pkg.Svc/Get"
)

// admit asks whether hedge n of a call of which nothing else has happened may be sent, and otherwise after what time to ask
// again; 0 is never.
func admit(c *engine.Call, n int) (send bool, again time.Duration) {
	e := c.Admit(n, n, new(race.Report))
	if e.Kind == race.HeldBack {
		again = e.Until - c.Age()
	}
	return e.Kind == race.Admitted, again
}
