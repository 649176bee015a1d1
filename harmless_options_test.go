package hedge_test

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/grpchedge/hedge"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// settings are options of a scheduler.
type settings struct {
	share     float64 // of the budget
	hedges    int
	reads     bool // methods only read; otherwise they may run twice
	elsewhere bool // WithOtherBackendOnly
	unguarded bool
	resets    int // WithResetLimit, a minute; 0: none
	costs     []float64
	trigger   hedge.Trigger
}

// drawSettings draws options; hedges go to other backends if it is said that they can.
func drawSettings(r *rand.Rand, elsewhere bool) settings {
	s := settings{
		share: oneOf(r, 0.02, 0.1, 0.1, 0.5), hedges: 1 + r.IntN(4), reads: chance(r, 0.5),
		elsewhere: elsewhere && chance(r, 0.3), unguarded: chance(r, 0.1),
		costs:   oneOf(r, []float64{1}, []float64{1}, []float64{1, 1, 1, 20}, []float64{0.25, 3, math.Inf(1), 0}),
		trigger: oneOf(r, hedge.Auto(), hedge.Auto(), hedge.Percentile(0.95), hedge.Fixed(20*time.Millisecond)),
	}
	if chance(r, 0.2) {
		s.resets = 10 + r.IntN(90)
	}
	return s
}

// options are those of a configuration.
func (w *world) options(s settings) []hedge.Option {
	methods := hedge.WithMethods("/*/*")
	if s.reads {
		methods = hedge.WithReadOnlyMethods("/*/*")
	}
	opts := []hedge.Option{
		methods, hedge.WithTrigger(s.trigger), hedge.WithMaxHedges(s.hedges), hedge.WithBudgetPercent(100 * s.share),
		hedge.WithCost(func(_ context.Context, _ string, request any) float64 { return s.cost(request.(*testpb.Request).Id) }),
		hedge.WithTrace(&hedge.Trace{CallDecided: func(c stats.CallDecided) {
			if c.Winner > 0 {
				w.book.add(event{wins: 1})
			}
		}}),
	}
	if s.elsewhere {
		opts = append(opts, hedge.WithOtherBackendOnly())
	}
	if s.unguarded {
		opts = append(opts, hedge.WithoutGuard())
	}
	if s.resets > 0 {
		opts = append(opts, hedge.WithResetLimit(s.resets, time.Minute))
	}
	return opts
}

// cost is what the function of WithCost says.
func (s settings) cost(id uint64) float64 { return s.costs[id%uint64(len(s.costs))] }

// price is what an attempt costs.
func (s settings) price(id uint64) float64 {
	if cost := s.cost(id); cost >= 0 && !math.IsInf(cost, 1) {
		return cost
	}
	return 1
}

// update changes the options, if the client hedges.
func (c *client) update(s settings) {
	if c.hedged {
		if err := c.scheduler.Update(c.options(s)...); err != nil {
			panic(err)
		}
	}
}
