package hedge

import (
	"errors"
	"time"

	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/stats"
)

// Scheduler decides which calls are hedged, and when, from the latencies that it learns for each
// method of each target. One scheduler serves any number of connections. All its methods may be
// called concurrently. It runs no goroutine and needs no closing. A nil *Scheduler and the zero
// Scheduler neither hedge nor learn.
type Scheduler registry.Registry

// New returns a scheduler. An option must select the methods that may run twice:
// [WithReadOnlyMethods], [WithMethods], [WithIdempotentOnly], [WithServiceConfig] or
// [WithAllMethods]. [WithOff] alone is enough. Every other option has a default. The returned error
// joins one error for each option that is out of range, with the option and its value. A nil option
// is ignored.
//
// The environment variable HEDGE_DISABLED starts the scheduler paused: any value that is
// neither empty nor false to [strconv.ParseBool]. stats.Method.PausedBy reports it.
func New(opts ...Option) (*Scheduler, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	s := (*Scheduler)(registry.New(c.Config))
	for _, made := range c.made {
		made(s)
	}
	return s, nil
}

// Update replaces the whole configuration, as if [New] had made the scheduler with these options:
// an option that is not given has its default, so repeat options such as [WithClass]. Learned
// latencies, budgets, counts and pauses are kept. Calls that begin after Update returns use the new
// configuration; earlier calls keep theirs.
//
// [WithTrace], [WithLogger], [WithTargetName], [WithWindow] and [WithMaxMethods] stay in force, and
// need not be repeated. A different window or number of methods is an error once a call was made.
// Update ignores a trace, logger or target name, or returns an error if New was given none. Update
// returns the errors of New, and an error for a nil scheduler. After an error nothing has changed,
// except that [WithOff](true), if it is among the options, is in force beside the old ones: a mistake
// elsewhere must not keep hedging on. [WithLogger] logs the changes, or the error.
//
// Update may be called concurrently. It takes a few microseconds per known method.
func (s *Scheduler) Update(opts ...Option) error {
	r := s.registry()
	if !r.Made() {
		return errors.New("hedge: Update: the scheduler must be made by New")
	}
	c, err := newConfig(opts)
	old := r.Config()
	given := func(option string) bool { _, given := c.given[option]; return given }
	err = errors.Join(err,
		refuse(given("WithTargetName") && old.TargetName == nil, "Update: WithTargetName: must be given to New"),
		refuse(given("WithTrace") && !old.Traced, "Update: WithTrace: must be given to New"),
		refuse(given("WithLogger") && !old.Logged, "Update: WithLogger: must be given to New"))
	c.Reporting = old.Reporting
	if !given("WithWindow") {
		c.Window = old.Window
	}
	if !given("WithMaxMethods") {
		c.MaxMethods = old.MaxMethods
	}
	if err == nil {
		err = r.Update(c.Config)
	}
	if err != nil {
		r.Refuse(err, c.Off)
	}
	return err
}

func (s *Scheduler) registry() *registry.Registry { return (*registry.Registry)(s) }

// Pause stops hedging until Resume: no call begun later is hedged, no primary is moved past a
// silent backend, and calls in flight get no more hedges. Latencies are still learned. To stop
// hedging for some methods or targets, use [Scheduler.Update] with [WithOff] for them.
func (s *Scheduler) Pause() { s.registry().SetPause(registry.ByPause) }

// Resume undoes Pause, and the environment variable HEDGE_DISABLED.
func (s *Scheduler) Resume() { s.registry().SetPause("") }

// Latency returns the quantile q, 0 < q < 1, of the latencies of a method's primaries within the
// window. It reports false for a method without latencies, and for q out of range. target is the
// result of grpc.ClientConn.Target, or its name from [WithTargetName]. method is the full method,
// such as "/pkg.Svc/Get".
func (s *Scheduler) Latency(target, method string, q float64) (time.Duration, bool) {
	m := s.registry().Find(target, method)
	if m == nil {
		return 0, false
	}
	return m.Learner.Snapshot(time.Now()).Quantile(q)
}

// Stats returns the totals over all methods of all targets, including methods removed from memory.
// The counts are consistent: HedgeWins + PrimaryWins ≤ Hedged ≤ Hedges, and Hedged ≤ Calls.
func (s *Scheduler) Stats() stats.Counts { return s.registry().Stats() }

// Methods returns one row per method of each target, sorted by target and method; nil for a nil
// scheduler. It reads the latencies of every method: call it for a metrics page, not per call.
func (s *Scheduler) Methods() []stats.Method { return s.registry().Methods() }
