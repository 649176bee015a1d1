package hedge

import (
	"fmt"
	"io"
	"time"

	"github.com/grpchedge/hedge/internal/settings"
)

const minWindow = 10 * time.Millisecond

// WithWindow sets the window, the time for which latencies are remembered: 10 ms or more; the
// default is 30 s. The last 1,000 calls of a method are remembered for up to 720 windows. A shorter
// window follows changes faster, but estimates quantiles from fewer calls.
func WithWindow(d time.Duration) Option {
	err := refuse(d < minWindow, "WithWindow(%v): must be at least %v", d, minWindow)
	return option("WithWindow", forScheduler, err, func(c *settings.Config) { c.Window = d })
}

// WithMaxMethods sets how many methods a scheduler remembers: 1 or more; the default is 5,000. The
// same method of two targets counts twice. Above the limit the least used methods are removed with
// all their latencies: first methods with a single call, then in about the order of their last
// calls. A method without a call for 15 minutes is removed too. [stats.Counts] keeps the counts of
// removed methods. A removed method starts again without latencies. If more methods are in use than
// the limit, each is removed before it is learned, so set a higher limit.
//
// The limit bounds the memory of a scheduler:
//
//	3.3 KB           a method with a few calls
//	27 KB            a busy method
//	66 KB            a busy method with latencies from 1 ms to 1 s
//	0.7 MB           a method with latencies of every length
//	2 KB             a target
//	20 to 330 MB     5,000 methods
//	as a method      each class of WithClass
//	up to 420 KB     each control group of WithControl, per method
func WithMaxMethods(methods int) Option {
	err := refuse(methods < 1, "WithMaxMethods(%d): must be at least 1", methods)
	return option("WithMaxMethods", forScheduler, err, func(c *settings.Config) { c.MaxMethods = methods })
}

// WithTargetName sets the function that names a connection's target; by default the name is the
// target itself. Targets of one name share their budget, their latencies and their rows of
// [stats.Method]. It is for clients that generate a new target for each connection, as etcd's does.
//
// name must not be nil, must be deterministic, and must be safe for concurrent use. Its panic is a
// panic of the call. Names are truncated to 1,024 bytes. The policy of package balancer always uses
// the connection's own target.
func WithTargetName(name func(target string) string) Option {
	err := refuse(name == nil, "WithTargetName(nil): must not be nil")
	return option("WithTargetName", forScheduler, err, func(c *settings.Config) { c.TargetName = name })
}

// WithSnapshot starts the scheduler with the latencies that another one has learned: r reads the
// output of [Scheduler.WriteSnapshot]. A method in the snapshot has no warm-up: its first call is
// hedged. The snapshots of repeated options are merged, weighted by each method's number of calls.
// docs/snapshot.md describes how a snapshot is weighted and when it is forgotten.
//
// [New] reads r to its end, so a second New needs another reader. It returns the error of r, and an
// error if the snapshot is empty, truncated, longer than 64 MiB, or has a value out of range. If a
// snapshot has more methods than half of [WithMaxMethods], only the methods with the most calls are
// restored. r must not be nil.
func WithSnapshot(r io.Reader) Option {
	err := refuse(r == nil, "WithSnapshot(nil): must not be nil")
	return option("WithSnapshot", forScheduler, err, func(c *settings.Config) { c.Snapshots = append(c.Snapshots, r) })
}

// WriteSnapshot writes the learned latencies for [WithSnapshot] of another scheduler. A snapshot is
// one protobuf message, a hedge.snapshot.Snapshot, of 1 to 8 KB per method: see docs/snapshot.md.
// Concatenated snapshots are one merged snapshot.
//
// WriteSnapshot may be called concurrently with calls. It reads each method at one moment, in about
// 0.1 ms, and leaves out names that are empty or not valid UTF-8. It returns the error of w, which
// may then have received a part; [New] rejects a part. A nil *Scheduler and the zero Scheduler
// write an empty snapshot.
func (s *Scheduler) WriteSnapshot(w io.Writer) error {
	if err := s.registry().WriteSnapshot(w); err != nil {
		return fmt.Errorf("hedge: WriteSnapshot: %w", err)
	}
	return nil
}
