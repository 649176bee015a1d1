package race

import (
	"context"
	"sync"
)

func Mutex(r *Race) *sync.Mutex { return &r.mu }

func Armed(a *Alarm) bool { return !a.firesAt.IsZero() }

// HedgeContext returns the context of hedge n of a race under ctx, and a function that lets it win.
func HedgeContext(ctx context.Context, n int, primaryInFlight bool) (*Context, func()) {
	x := &runner{Race: &Race{ctx: ctx}}
	x.stepped.L = &x.mu
	c := x.hedgeContext(uint8(n), primaryInFlight)
	return c, func() { c.hedge.won.Store(true) }
}
