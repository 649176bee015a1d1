package hedge

import (
	"errors"
	"fmt"
	"slices"
)

// Update replaces the configuration as a whole, as if the scheduler had been made by [New] with these options: an option
// that is not given has its default. So give options that take a Go function again too, such as [WithClass], [WithTrace] and
// [WithLogger], which [ParseConfig] cannot return. What was learned, budgets, counts and pauses stay. The new configuration
// is in force for every call that begins after Update has returned. A call that began before ends under the configuration
// that it began with.
//
// The error is that of New, and nothing changes then. [WithWindow], [WithMaxMemory] and [WithTargetName] belong to what is
// remembered, and stay as New set them: they need not be given again, and another value is an error. [WithSnapshot] is for
// New alone. Where delays are learned, a method keeps its last delay, and the number of hedges that goes with it, until its next call
// has ended, and the choice of [Auto] may take a second longer. An error is returned for a nil scheduler.
//
// Update may be called concurrently with calls and with itself. Each method settles its part of the new configuration with
// its first call, which takes a few microseconds.
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
