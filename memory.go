package hedge

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/internal/snapshot"
)

const (
	minWindow = 10 * time.Millisecond
	minMemory = 1 << 20 // bytes
)

// WithWindow sets how long an observed latency is remembered where there are newer ones: 10 ms or more; the default is 30 s.
// The last 1,000 calls of a method are remembered whatever their age, up to 720 windows. What is older than the window, and
// than these calls, is gone after 16/15 of the window. A shorter window follows changes faster, and estimates quantiles from
// fewer calls.
func WithWindow(d time.Duration) Option {
	err := refuse(d < minWindow, "WithWindow(%v): the window must be at least %v", d, minWindow)
	return option("WithWindow", err, func(c *settings.Config) { c.Window = d })
}

// WithMaxMemory sets how much memory a scheduler uses for what it has learned, in bytes of live heap: 1 MiB or more; the
// default is 64 MiB. Above that, the least used methods are removed, with all that was learned of them. A target is removed
// with its last method. Calls of removed methods stay counted in [stats.Counts]. A method that is called again after its removal is
// learned again from the start.
//
// Methods that were called only once are removed first, the oldest of them first. Then follow, approximately, those that
// were not called for longest. So any number of invalid method names does not displace methods in use.
//
// A method takes about 2 KB when it has had a few calls, 10 to 50 KB while it is called many times a second, the wider its
// latencies spread the more, and 620 KB at the very most; a target takes 1.2 KB. So the default has room for about
// 30,000 methods that are called seldom, or 2,000 busy ones. Each class of [WithClass] takes as much as a method, and a
// control group of [WithControl] up to 420 KB a method. The garbage collector's own overhead comes on top, as with any live
// heap.
//
// The first call of a method, and the first after its removal, takes a lock and a few microseconds. If more methods are in
// use than there is room for, many calls pay this, and methods are removed before they are learned. Set a higher limit then.
func WithMaxMemory(bytes int64) Option {
	err := refuse(bytes < minMemory, "WithMaxMemory(%d): the memory must be at least %d bytes", bytes, minMemory)
	return option("WithMaxMemory", err, func(c *settings.Config) { c.MaxMemory = bytes })
}

// WithTargetName sets the function that returns the name of a connection's target. Targets with the same name share their
// budget, their latencies and their rows of [stats.Method]. It is for clients that make up a different target for each
// connection, as etcd's does with a pointer in it: without a common name, a new connection has to learn from the start. By
// default the name is the target itself.
//
// The function is called when the scheduler meets a new target, and sometimes again for a known one, but not for every call.
// It must not be nil, must return the same name each time, and may be called concurrently. If it panics, the call panics.
// Names are cut to 1,024 bytes.
//
// The policy of package balancer always uses the connection's own target.
func WithTargetName(name func(target string) string) Option {
	err := refuse(name == nil, "WithTargetName(nil): there must be a function")
	return option("WithTargetName", err, func(c *settings.Config) { c.TargetName = name })
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
	return named("WithSnapshot", func(c *settings.Config) error {
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
