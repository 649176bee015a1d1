package race

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
)

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

// Panic is what a call panics with when a hedge has panicked.
type Panic struct {
	// Value is what the hedge panicked with.
	Value any
	// Stack is the stack of the hedge's goroutine then, as [debug.Stack] formats it.
	Stack []byte
}

// newPanic returns a Panic with the current stack. Call it on the goroutine that panicked, in a deferred function.
func newPanic(value any) *Panic {
	stack := debug.Stack()
	// The first line has the goroutine's number, which means nothing once the goroutine has ended.
	if _, frames, ok := bytes.Cut(stack, []byte("\n")); ok {
		stack = frames
	}
	return &Panic{Value: value, Stack: stack}
}

// Error returns the value and the stack, so that the Go runtime prints both if the panic is not recovered.
func (p *Panic) Error() string {
	return fmt.Sprintf("hedge: panic in a hedge: %v\n\n%s", p.Value, p.Stack)
}

// Unwrap returns the value if that is an error, and nil otherwise.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
