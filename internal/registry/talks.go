package registry

import "sync/atomic"

// Talks measures how often the callers of a bidirectional method send a second message. It may be
// used concurrently.
type Talks struct{ level atomic.Int32 }

const (
	often     = 16 // one stream in this many
	mostTalks = 10 * often
)

// Begins notes a stream that begins. It reports whether second messages are frequent.
func (t *Talks) Begins() bool {
	level := t.level.Load()
	if level > 0 {
		t.level.Add(-1)
	}
	return level > 3*often
}

// Second notes a second message.
func (t *Talks) Second() {
	if t.level.Add(often) > mostTalks {
		t.level.Store(mostTalks)
	}
}
