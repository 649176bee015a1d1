package race

import "runtime"

// crash is a panic, or a runtime.Goexit, of a hedge that must surface on the caller's goroutine.
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

// crashed makes the panic of h the outcome of the call, unless the call is already decided.
func (r *Race) crashed(h *hedge, c *crash) {
	r.mu.Lock()
	if h.n == 0 { // it panicked before it had entered
		h.cancel = func(error) {}
		r.running++
	}
	surfaces := !r.over
	if surfaces {
		r.crash = c
	}
	r.leave(surfaces)
	r.mu.Unlock()
	h.cancel(ErrLost)
	if surfaces {
		r.cancelLosers(h)
	} else {
		r.policy.LoserPanicked()
	}
}

// cancelLosers ends all attempts but h, at the moment h has won. The lock is not held: cancelling runs other
// packages' code. Once the race is over r.hedges does not change.
func (r *Race) cancelLosers(winner *hedge) {
	r.cancelPrimary(ErrLost)
	for _, h := range r.hedges {
		if h != winner {
			h.cancel(ErrLost)
		}
	}
}

// abandon ends every attempt of a race whose caller is unwinding.
func (r *Race) abandon() {
	r.mu.Lock()
	r.over = true
	r.awaitPrepared()
	r.timer.Stop()
	r.mu.Unlock()
	r.cancelLosers(nil)
	if r.Shared {
		r.awaitLosers()
	}
}

// awaitLosers returns when no hedge runs any more. The race must be over.
func (r *Race) awaitLosers() {
	r.mu.Lock()
	if r.running == 0 {
		r.mu.Unlock()
		return
	}
	r.unwound = make(chan struct{})
	r.mu.Unlock()
	<-r.unwound
}

func (c *crash) surface() {
	if c.goexit {
		runtime.Goexit()
	}
	panic(c.panic)
}
