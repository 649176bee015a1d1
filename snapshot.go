package hedge

import (
	"errors"
	"fmt"
	"io"

	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/snapshot"
)

// WriteSnapshot writes what the scheduler has learned, so that another one, in the next process or in another pod, can begin
// with it: see [WithSnapshot]. That is, for every method of every target and every class of requests, what primaries and
// hedges take and what became of hedged calls; and for every target how many calls a second came, and until when no losers
// are reset because the server said that there were too many resets (see [stats.Resets]). Counts, tokens and choices are not in it.
//
// It is one protobuf message, a hedge.snapshot.Snapshot, with sketches of DataDog's sketches-go in it, which other tools can
// read and merge; docs/snapshot.md describes it. It takes 1 to 15 KB a method. Snapshots that are appended to each other are
// the snapshot of all of them.
//
// It may be called at any time, while calls are made. Each method is read at one moment, and a call that ends meanwhile is
// either in it or not. It reads the latencies of every method, which takes about 0.1 ms each. A method or target whose name
// is empty, or not valid UTF-8, is left out. An error is one of w, which may then have got a part; a part is not accepted as
// a snapshot.
//
// With a nil *Scheduler or the zero Scheduler it writes an empty snapshot.
func (s *Scheduler) WriteSnapshot(w io.Writer) error {
	if err := s.inner().WriteSnapshot(w); err != nil {
		return fmt.Errorf("hedge: WriteSnapshot: %w", err)
	}
	return nil
}

// WithSnapshot has the scheduler begin with what another one has learned: r reads what [Scheduler.WriteSnapshot] wrote. A
// method that is in it has no warm-up: its calls are hedged from the first one on. If the option is given more than once,
// the snapshots are merged, by the number of calls that they know each method from.
//
// What was taken over of a method counts for a thousand calls at most. It fades with the first thousand calls of the
// scheduler's own, and is forgotten at once if those follow another distribution. The budget of a target begins with what two seconds
// of its calls earn, and with eight hedges at most.
//
// Targets are found by their names, which [WithTargetName] gives them. Methods that the options do not select are left out.
// If all methods take more than half of [WithMaxMemory], those that the most calls are known of are kept. A method that is
// not called for 15 minutes is forgotten, as every method is.
//
// [New] reads r to its end, and returns an error if that fails, or if what it reads is empty, cut off, longer than 256 MiB,
// no snapshot, or one with values out of range. Reading takes at most five times its bytes, and 256 bytes for each target,
// method and class; what is kept is within [WithMaxMemory]. What a later version has added is ignored. A reader can be read
// once: a second New with the same option needs another one. r must not be nil.
func WithSnapshot(r io.Reader) Option {
	return named("WithSnapshot", func(c *engine.Config) error {
		if r == nil {
			return errors.New("hedge: WithSnapshot(nil): there must be a reader")
		}
		s, err := snapshot.Read(r)
		if err != nil {
			return fmt.Errorf("hedge: WithSnapshot: %w", err)
		}
		if c.TakenOver == nil {
			c.TakenOver = snapshot.Snapshot{}
		}
		c.TakenOver.Merge(s)
		return nil
	})
}
