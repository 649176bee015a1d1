package hedge

import (
	"errors"
	"fmt"
	"slices"
)

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
