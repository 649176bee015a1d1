package hedge

import (
	"fmt"
	"io"
	"time"

	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
)

const minWindow = 10 * time.Millisecond

// WithWindow sets how long a latency is remembered: 10 ms or more; the default is 30 s. The last 1,000 calls of a method are
// remembered for up to 720 windows. A shorter window follows changes faster, and estimates quantiles from fewer calls.
func WithWindow(d time.Duration) Option {
	err := refuse(d < minWindow, "WithWindow(%v): the window must be at least %v", d, minWindow)
	return option("WithWindow", err, func(c *settings.Config) { c.Window = d })
}

// WithMaxMethods sets how many methods a scheduler remembers: 1 or more; the default is 5,000. A method of two targets counts
// twice. Above the limit, the least used methods are removed, with all that was learned of them: first methods that were called
// only once, then about in the order of their last calls. A method that is not called for 15 minutes is removed too.
// [stats.Counts] still has their calls. A removed method that is called again is learned from the start. If more methods are in use
// than the limit, they are removed before they are learned: then set a higher limit.
//
// This bounds the memory. A method with a few calls takes about 4 KB, its target 2 KB, a busy method 27 KB, and a busy method whose
// latencies spread from 1 ms to 1 s 66 KB. 5,000 methods take 20 to 330 MB. One method takes at most 0.7 MB, where latencies of every length are seen. A class of [WithClass] takes as much
// as another method, and a control group of [WithControl] up to 420 KB a method.
func WithMaxMethods(methods int) Option {
	err := refuse(methods < 1, "WithMaxMethods(%d): the number of methods must be at least 1", methods)
	return option("WithMaxMethods", err, func(c *settings.Config) { c.MaxMethods = methods })
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
// empty, cut off, longer than 64 MiB, or has values out of range. If it has more than half of the methods that [WithMaxMethods]
// allows, those with the most calls are kept. r must not be nil.
func WithSnapshot(r io.Reader) Option {
	err := refuse(r == nil, "WithSnapshot(nil): there must be a reader")
	return option("WithSnapshot", err, func(c *settings.Config) { c.Snapshots = append(c.Snapshots, r) })
}

// WriteSnapshot writes what the scheduler has learned, so that another one can begin with it: see [WithSnapshot]. A snapshot is
// one protobuf message, a hedge.snapshot.Snapshot, of 1 to 15 KB a method; docs/snapshot.md describes it. Snapshots that are
// appended to each other are one snapshot of all.
//
// WriteSnapshot may be called concurrently with calls. It reads each method at one moment, in about 0.1 ms. It leaves out
// methods and targets whose name is empty or not valid UTF-8. It returns the error of w, which may then have got a part; [New]
// refuses a part. A nil *Scheduler and the zero Scheduler write an empty snapshot.
func (s *Scheduler) WriteSnapshot(w io.Writer) error {
	if err := registry.Of(s).WriteSnapshot(w); err != nil {
		return fmt.Errorf("hedge: WriteSnapshot: %w", err)
	}
	return nil
}
