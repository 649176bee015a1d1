package hedge

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/stats"
)

// Scheduler decides which calls are hedged and when, and keeps what it has learned of each target and, for each target, of
// each full method. One scheduler serves any number of connections. All its methods may be called concurrently. It runs no
// goroutine of its own and needs no closing. With a nil *Scheduler or the zero Scheduler nothing is hedged or learned.
type Scheduler struct{ engine *engine.Engine }

// New returns a scheduler. One of the options must say which methods may run twice: see [WithAllMethods] for the list. Every
// other option has a default. The error joins one error for each option that is out of range, which names the option and its
// value. A nil option is ignored.
//
// If the environment variable HEDGE_DISABLED is set, to anything but a value that [strconv.ParseBool] takes for false, the
// scheduler starts paused: see [Scheduler.Pause]. stats.Method.PausedBy says so.
func New(opts ...Option) (*Scheduler, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	s := &Scheduler{engine.New(c)}
	for _, made := range c.Made {
		made(s)
	}
	return s, nil
}

func init() {
	engine.Of = func(scheduler any) *engine.Engine {
		s, _ := scheduler.(*Scheduler)
		return s.inner()
	}
}

// inner returns the scheduler's engine; nil for a nil scheduler. A nil engine hedges nothing.
func (s *Scheduler) inner() *engine.Engine {
	if s == nil {
		return nil
	}
	return s.engine
}

// Update replaces the configuration as a whole, as if the scheduler had been made by [New] with these options: an option
// that is not given has its default. So give options that take a Go function again too, such as [WithClass], [WithTrace] and
// [WithLogger], which have no form in JSON. What was learned, budgets, counts and pauses stay. The new configuration
// is in force for every call that begins after Update has returned. A call that began before ends under the configuration
// that it began with. With another trigger, a method keeps its last delay until its next call has ended, and the choice of
// [Auto] may take a second longer.
//
// Update returns an error where New does, and for a nil scheduler. After an error nothing has changed. [WithWindow],
// [WithMaxMemory] and [WithTargetName] stay as New set them, and need not be given again. Another window or memory is an
// error, and so is WithTargetName if New was given none. Otherwise New's function stays, and the new one is ignored.
// [WithSnapshot] is for New alone, and an error here.
//
// Update may be called concurrently with calls and with itself. The first call of each method afterwards works out what the
// new configuration means for it, which takes a few microseconds.
func (s *Scheduler) Update(opts ...Option) error {
	e := s.inner()
	if e == nil {
		return errors.New("hedge: Update: the scheduler is nil, or was not made by New")
	}
	c, err := newConfig(opts)
	if err != nil {
		return err
	}
	old := e.Config()
	if slices.Contains(c.Set, "WithWindow") && c.Window != old.Window {
		err = fmt.Errorf("hedge: Update: WithWindow(%v): the window stays what it is, %v", c.Window, old.Window)
	}
	if slices.Contains(c.Set, "WithMaxMemory") && c.MaxMemory != old.MaxMemory {
		err = errors.Join(err, fmt.Errorf("hedge: Update: WithMaxMemory(%d): the memory stays what it is, %d bytes", c.MaxMemory, old.MaxMemory))
	}
	if slices.Contains(c.Set, "WithSnapshot") {
		err = errors.Join(err, errors.New("hedge: Update: WithSnapshot: a scheduler that is running keeps what it has learned"))
	}
	if slices.Contains(c.Set, "WithTargetName") && old.TargetName == nil {
		err = errors.Join(err, errors.New("hedge: Update: WithTargetName: the targets keep their names"))
	}
	if err != nil {
		return err
	}
	c.Window, c.MaxMemory, c.TargetName = old.Window, old.MaxMemory, old.TargetName
	e.Update(c)
	return nil
}

// Pause stops hedging, from the next call on, until Resume. Latencies are still learned.
func (s *Scheduler) Pause() { s.inner().Pause() }

// Resume undoes Pause, and the environment variable HEDGE_DISABLED.
func (s *Scheduler) Resume() { s.inner().Resume() }

// PauseTarget does for one target what Pause does for all, until ResumeTarget. The target is named as in [stats.Method].
func (s *Scheduler) PauseTarget(target string) { s.inner().PauseTarget(target) }

// ResumeTarget undoes PauseTarget for a target. A Pause stays in force.
func (s *Scheduler) ResumeTarget(target string) { s.inner().ResumeTarget(target) }

// PauseMethod does for one full method, such as "/pkg.Svc/Get", what Pause does for all, at every target, until
// ResumeMethod.
func (s *Scheduler) PauseMethod(method string) { s.inner().PauseMethod(method) }

// ResumeMethod undoes PauseMethod for a method. A Pause stays in force.
func (s *Scheduler) ResumeMethod(method string) { s.inner().ResumeMethod(method) }

// Latency returns the quantile q, 0 < q < 1, of the latencies of a method's primaries within the window. It returns false if
// nothing is known of the method, or q is out of range. target is the connection's target, as grpc.ClientConn.Target returns
// it, or the name that [WithTargetName] gives it. method is the full method, such as "/pkg.Svc/Get".
func (s *Scheduler) Latency(target, method string, q float64) (time.Duration, bool) {
	return s.inner().Latency(target, method, q)
}

// Stats returns the totals over all methods of all targets, including those that were removed from memory. The counts are
// consistent: HedgeWins + PrimaryWins ≤ Hedged ≤ Hedges, and Hedged ≤ Calls.
func (s *Scheduler) Stats() stats.Counts { return s.inner().Stats() }

// Targets returns one row for each method of each target, sorted by target and method; nil for a nil scheduler. It reads the
// latencies of every method, so call it for a metrics page and not for every call.
func (s *Scheduler) Targets() []stats.Method { return s.inner().Methods() }
