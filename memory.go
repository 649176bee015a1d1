package hedge

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/grpchedge/hedge/internal/settings"
)

const (
	minWindow = 10 * time.Millisecond
	minMemory = 1 << 20 // bytes
)

// WithWindow sets how long a latency is remembered: 10 ms or more; the default is 30 s. The last 1,000 calls of a method are
// remembered for up to 720 windows. A shorter window follows changes faster, and estimates quantiles from fewer calls.
func WithWindow(d time.Duration) Option {
	err := refuse(d < minWindow, "WithWindow(%v): the window must be at least %v", d, minWindow)
	return option("WithWindow", err, func(c *settings.Config) { c.Window = d })
}

// WithMaxMemory sets how much memory a scheduler uses for what it has learned, in bytes of live heap: 1 MiB or more; the
// default is 64 MiB. Above that, the least used methods are removed, with all that was learned of them: first those that were
// called only once, then about in the order of their last calls. So is a method that is not called for 15 minutes.
// [stats.Counts] still has their calls. If such a method is called again, it is learned from the start.
//
// A method with a few calls takes about 4 KB, a busy one 15 to 30 KB. The most is 1.1 MB, for latencies of every length. A target takes 2 KB, a class of [WithClass] 2 to 10 KB, and
// a control group of [WithControl] up to 420 KB a method. So the default has room for about 15,000 methods that are called
// seldom, or 1,000 to 2,000 busy ones. If more are in use, many calls take a lock and a few
// microseconds, and methods are removed before they are learned. Then set a higher limit.
func WithMaxMemory(bytes int64) Option {
	err := refuse(bytes < minMemory, "WithMaxMemory(%d): the memory must be at least %d bytes", bytes, minMemory)
	return option("WithMaxMemory", err, func(c *settings.Config) { c.MaxMemory = bytes })
}

// WithTargetName sets the function that returns the name of a connection's target. Targets with the same name share their
// budget, their latencies and their rows of [stats.Method]. It is for clients that make up another target for each connection,
// as etcd's does. By default the name is the target itself.
//
// The function must not be nil, must return the same name each time, and must be safe for concurrent use. Its panic is a panic
// of the call. Names are cut to 1,024 bytes. The policy of package balancer always uses the connection's own target.
func WithTargetName(name func(target string) string) Option {
	err := refuse(name == nil, "WithTargetName(nil): there must be a function")
	return option("WithTargetName", err, func(c *settings.Config) { c.TargetName = name })
}

// WithSnapshot starts the scheduler with what another one has learned: r reads what [Scheduler.WriteSnapshot] wrote. A method
// in the snapshot has no warm-up: its calls are hedged from the first one on. If the option is given more than once, the
// snapshots are merged, by the number of calls that they know each method from. docs/snapshot.md says how much a snapshot
// counts, and when it is forgotten.
//
// [New] reads r to its end, so a second New needs another reader. It returns an error if that fails, and if the snapshot is
// empty, cut off, longer than 64 MiB, or has values out of range. If the methods take more than half of [WithMaxMemory], those with the most calls are kept.
// r must not be nil.
func WithSnapshot(r io.Reader) Option {
	return named("WithSnapshot", func(c *settings.Config) error {
		if r == nil {
			return errors.New("hedge: WithSnapshot(nil): there must be a reader")
		}
		if err := c.TakenOver.Read(r); err != nil {
			return fmt.Errorf("hedge: WithSnapshot: %w", err)
		}
		return nil
	})
}

// WriteSnapshot writes what the scheduler has learned, so that another one can begin with it: see [WithSnapshot]. A snapshot is
// one protobuf message, a hedge.snapshot.Snapshot, of 1 to 15 KB a method; docs/snapshot.md describes it. Snapshots that are
// appended to each other are the snapshot of all of them.
//
// WriteSnapshot may be called concurrently with calls. It reads each method at one moment, in about 0.1 ms. It leaves out
// methods and targets whose name is empty or not valid UTF-8. It returns the error of w, which may then have got a part; [New]
// refuses a part. A nil *Scheduler and the zero Scheduler write an empty snapshot.
func (s *Scheduler) WriteSnapshot(w io.Writer) error {
	if err := s.inner().WriteSnapshot(w); err != nil {
		return fmt.Errorf("hedge: WriteSnapshot: %w", err)
	}
	return nil
}
