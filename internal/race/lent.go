package race

import (
	"context"
	"time"
)

// lent is the caller's context as the parent of the context of hedge n. A loser may outlive the call,
// and the caller may then reuse its context. So once the race is over, a loser does not use the caller's
// context, and the call waits for uses that have begun. Values that the hedge has read stay available: a
// stats handler reports the end of an attempt to a value that it found at the beginning.
type lent struct {
	context.Context
	x        *runner
	n        uint8
	done     <-chan struct{}
	deadline time.Time
	limited  bool        // there is a deadline
	values   map[any]any // that the hedge has read; x.mu guards it
}

func lend(x *runner, n uint8) *lent {
	l := &lent{Context: x.ctx, x: x, n: n, done: x.ctx.Done(), values: map[any]any{}}
	l.deadline, l.limited = x.ctx.Deadline()
	return l
}

func (l *lent) Done() <-chan struct{} { return l.done }

func (l *lent) Deadline() (at time.Time, ok bool) { return l.deadline, l.limited }

func (l *lent) Err() error {
	err := context.Canceled
	l.use(func() { err = l.Context.Err() })
	return err
}

func (l *lent) Value(key any) (value any) {
	asked := l.use(func() { value = l.Context.Value(key) })
	l.x.mu.Lock()
	defer l.x.mu.Unlock()
	if !asked {
		return l.values[key]
	}
	if value != nil {
		l.values[key] = value
	}
	return value
}

// use calls f, unless hedge n has lost and the race is over. It reports whether it did.
func (l *lent) use(f func()) bool {
	l.x.mu.Lock()
	over, won := l.x.over, l.x.machine.decided && l.x.machine.winner == l.n
	if !over {
		l.x.guests++
	}
	l.x.mu.Unlock()
	switch {
	case !over:
		defer l.x.leave()
		f()
	case won:
		f()
	}
	return !over || won
}

// enter makes a hedge a guest, unless the race is decided: nothing of the user's runs then.
func (x *runner) enter() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.machine.decided {
		return false
	}
	x.guests++
	return true
}

func (x *runner) leave() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.guests--
	x.stepped.Broadcast()
}
