package race

import "runtime"

// crash is a panic or a runtime.Goexit of a hedge, or of a detached primary. If it decides the call, it is repeated on the
// caller's goroutine.
type crash struct {
	panic  *Panic
	goexit bool
}

// newCrash returns the crash for a value from recover; nil means a runtime.Goexit. The deferred function must call it, so
// that the stack is still that of the panic.
func newCrash(value any) *crash {
	if value == nil {
		return &crash{goexit: true}
	}
	return &crash{panic: newPanic(value)}
}

// rethrow repeats the panic or the Goexit on the current goroutine. It does not return.
func (c *crash) rethrow() {
	if c.goexit {
		runtime.Goexit()
	}
	panic(c.panic)
}

// hedgePanicked handles a hedge's panic, which is the outcome of the call if the race is not decided yet. The hedge panicked
// while the runner was doing a. A hedge that panicked before it was sent counts as sent.
func (x *runner) hedgePanicked(a Actions, c *crash) {
	if a.Ask > 0 {
		a = x.handle(Event{Kind: Admitted}, nil)
	}
	if n := a.Prepare; n > 0 {
		h := &x.hedges[n]
		if h.cancel == nil {
			h.cancel = func(error) {}
		}
		a = x.handle(Event{Kind: Prepared}, nil)
	}
	n := a.Start
	if n == 0 { // the call was over
		x.policy.LoserPanicked()
		return
	}
	h := &x.hedges[n]
	h.crash = c
	x.handle(Event{Kind: Ended, Attempt: n, End: Panicked}, nil)
	x.free(n)
}
