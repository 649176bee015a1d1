package race

import "runtime"

// crash is a panic, or a runtime.Goexit, of a hedge that may have to surface on the caller's goroutine.
type crash struct {
	panic  *Panic
	goexit bool
}

// newCrash is called by the deferred function that has recovered value; nil is a runtime.Goexit.
func newCrash(value any) *crash {
	if value == nil {
		return &crash{goexit: true}
	}
	return &crash{panic: newPanic(value)}
}

func (c *crash) surface() {
	if c.goexit {
		runtime.Goexit()
	}
	panic(c.panic)
}

// crashed takes the panic of a hedge into account, which is the outcome of the call unless that is decided. The hedge
// panicked while what a wanted last was being done. One that panicked before it was sent counts as sent.
func (x *runner) crashed(a Actions, c *crash) {
	if a.Ask > 0 {
		a = x.happened(Event{Kind: Admitted}, nil)
	}
	if n := a.Prepare; n > 0 {
		h := &x.hedges[n]
		if h.cancel == nil {
			h.cancel = func(error) {}
		}
		a = x.happened(Event{Kind: Prepared}, nil)
	}
	n := a.Start
	if n == 0 { // the call was over
		x.policy.LoserPanicked()
		return
	}
	h := &x.hedges[n]
	h.crash = c
	x.happened(Event{Kind: Ended, Attempt: n, End: Panicked}, nil)
	h.cancel(ErrLost)
}
