package hedge

import (
	"time"

	"github.com/grpchedge/hedge/internal/engine"
)

// Scheduler decides, for every call of the connections that share it, when to hedge and whether it may, and
// keeps what it has learned. Its state is per target and, under a target, per full method. One scheduler
// serves any number of connections; all its methods may be called concurrently. It runs no goroutine of its
// own and needs no closing. A nil *Scheduler hedges nothing and knows nothing; so does the zero Scheduler.
type Scheduler struct{ engine *engine.Engine }

// New returns a scheduler. Without options it needs no tuning: see each option for its default. The error
// joins one for every option that is out of range, and names the option and its value. A nil option is
// ignored.
func New(opts ...Option) (*Scheduler, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	return &Scheduler{engine.New(c)}, nil
}

func init() {
	engine.Of = func(scheduler any) *engine.Engine {
		s, _ := scheduler.(*Scheduler)
		return s.inner()
	}
}

// inner returns the scheduler's engine; nil, which hedges nothing, for a nil scheduler.
func (s *Scheduler) inner() *engine.Engine {
	if s == nil {
		return nil
	}
	return s.engine
}

// Pause stops hedging, from the next call on, until Resume. Latencies are still learned.
func (s *Scheduler) Pause() { s.inner().Pause() }

// Resume undoes Pause.
func (s *Scheduler) Resume() { s.inner().Resume() }

// Latency returns the quantile q, 0 < q < 1, of what the primaries of a method took over the window. It is
// false when nothing is known of the method. The target is the connection's, or what [WithTargetName] names it.
func (s *Scheduler) Latency(target, method string, q float64) (time.Duration, bool) {
	return s.inner().Latency(target, method, q)
}

// Stats returns the totals over all methods of all targets, those that have left included. In the copy the counts agree with
// each other: HedgeWins + PrimaryWins ≤ Hedged ≤ Hedges, and Hedged ≤ Calls.
func (s *Scheduler) Stats() Stats { return Stats(s.inner().Stats()) }

// Targets returns what is known of each method of each target, sorted by target and method.
func (s *Scheduler) Targets() []TargetStats {
	methods := s.inner().Methods()
	if methods == nil {
		return nil
	}
	rows := make([]TargetStats, 0, len(methods))
	for _, m := range methods {
		rows = append(rows, newTargetStats(m))
	}
	return rows
}
