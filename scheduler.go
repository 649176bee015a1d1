package hedge

import (
	"errors"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/feature/gate"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/stats"
)

// Scheduler decides which calls are hedged, and when. It keeps what it has learned of each method of each target. One
// scheduler serves any number of connections. All its methods may be called concurrently. It runs no goroutine of its
// own and needs no closing. A nil *Scheduler and the zero Scheduler hedge and learn nothing.
type Scheduler registry.Handle

// New returns a scheduler. One of the options must say which methods may run twice: [WithAllMethods] lists them. Every
// other option has a default. The error joins one error for each option that is out of range. Each error names the
// option and its value. A nil option is ignored.
//
// The environment variable HEDGE_DISABLED starts the scheduler paused, as [Scheduler.Pause] does. Any value counts,
// except an empty one and those that [strconv.ParseBool] reads as false. stats.Method.PausedBy then names the variable.
func New(opts ...Option) (*Scheduler, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	h, err := registry.NewHandle(c.Config)
	if err != nil {
		return nil, err
	}
	s := (*Scheduler)(h)
	for _, made := range c.made {
		made(s)
	}
	return s, nil
}

// Update replaces the whole configuration, as if [New] had made the scheduler with these options. An option that is not given
// has its default. So pass again what takes a Go function, such as [WithClass]. What was learned, budgets, counts and pauses stay.
// The new configuration is in force for every call that begins after Update has returned. Earlier calls keep the configuration
// that they began with.
//
// Update returns an error where New does, and for a nil scheduler. An error changes nothing. [WithTrace], [WithLogger],
// [WithTargetName], [WithWindow] and [WithMaxMethods] belong to the scheduler: they stay as New set them, and need not be given
// again. Another window or number of methods is an error, and so is any of the first three if New was given none. Otherwise what New
// was given stays, and the new one is ignored. [WithSnapshot] is an error.
//
// Update may be called concurrently with calls and with itself. It takes a few microseconds for each method that is known.
func (s *Scheduler) Update(opts ...Option) error {
	r := registry.Of(s)
	if r == nil {
		return errors.New("hedge: Update: the scheduler is nil, or was not made by New")
	}
	c, err := newConfig(opts)
	if err != nil {
		return err
	}
	old := r.Config()
	given := func(option string) bool { return slices.Contains(c.Set, option) }
	err = errors.Join(
		refuse(given("WithWindow") && c.Window != old.Window, "Update: WithWindow(%v): the window stays what it is, %v", c.Window, old.Window),
		refuse(given("WithMaxMethods") && c.MaxMethods != old.MaxMethods, "Update: WithMaxMethods(%d): the most methods stay what they are, %d", c.MaxMethods, old.MaxMethods),
		refuse(given("WithSnapshot"), "Update: WithSnapshot: a scheduler that is running keeps what it has learned"),
		refuse(given("WithTargetName") && old.TargetName == nil, "Update: WithTargetName: the targets keep their names"),
		refuse(given("WithTrace") && !old.Traced, "Update: WithTrace: give it to New, as a scheduler keeps its traces"),
		refuse(given("WithLogger") && !old.Logged, "Update: WithLogger: give it to New, as a scheduler keeps its loggers"))
	if err != nil {
		return err
	}
	c.Window, c.MaxMethods, c.Reporting = old.Window, old.MaxMethods, old.Reporting
	r.Update(c.Config)
	return nil
}

// Pause stops all that the library does, from the next call on, until Resume: no hedge is sent, no primary is moved past a silent
// backend. Calls in flight get no more hedges. Latencies are still learned. To stop hedging of some methods or targets, set
// [WithOff] for them with [Scheduler.Update].
func (s *Scheduler) Pause() { registry.Of(s).Pause().Store(gate.ByPause) }

// Resume undoes Pause, and the environment variable HEDGE_DISABLED.
func (s *Scheduler) Resume() { registry.Of(s).Pause().Store("") }

// Latency returns the quantile q, 0 < q < 1, of the latencies of a method's primaries within the window. It returns
// false if nothing is known of the method, or if q is out of range. target is what grpc.ClientConn.Target returns, or
// the name that [WithTargetName] gives it. method is the full method, such as "/pkg.Svc/Get".
func (s *Scheduler) Latency(target, method string, q float64) (time.Duration, bool) {
	return registry.Of(s).Latency(target, method, q)
}

// Stats returns the totals over all methods of all targets. Methods that were removed from memory still count. The
// counts are consistent: HedgeWins + PrimaryWins ≤ Hedged ≤ Hedges, and Hedged ≤ Calls.
func (s *Scheduler) Stats() stats.Counts { return registry.Of(s).Stats() }

// Methods returns one row for each method of each target, sorted by target and method; nil for a nil scheduler. It reads
// the latencies of every method, so call it for a metrics page and not for every call.
func (s *Scheduler) Methods() []stats.Method { return registry.Of(s).Methods() }
