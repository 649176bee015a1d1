package registry

import "sync/atomic"

// SecondRequests measures how often the callers of a bidirectional method send a second message. It may be
// used concurrently.
type SecondRequests struct{ level atomic.Int32 }

const (
	often     = 16 // one stream in this many
	mostLevel = 10 * often
)

// Begins notes a stream that begins, and reports whether second messages are frequent.
func (t *SecondRequests) Begins() bool {
	level := t.level.Load()
	if level > 0 {
		t.level.Add(-1)
	}
	return level > 3*often
}

// Add notes a second message.
func (t *SecondRequests) Add() {
	if t.level.Add(often) > mostLevel {
		t.level.Store(mostLevel)
	}
}
