package race

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
)

// protect runs f. If f panics or calls runtime.Goexit, protect runs crashed. crash repeats the
// panic or Goexit on the goroutine that calls it, and does not return.
func protect(f func(), crashed func(crash func())) {
	returned := false
	defer func() {
		if !returned {
			crashed(crashOf(recover()))
		}
	}()
	f()
	returned = true
}

// crashOf returns a function that panics with value or, if value is nil, calls Goexit. Only a
// deferred function may call crashOf, while the stack of the panic exists.
func crashOf(value any) func() {
	if value == nil {
		return runtime.Goexit
	}
	stack := debug.Stack()
	// The first line has the number of a goroutine that has ended.
	if _, frames, ok := bytes.Cut(stack, []byte("\n")); ok {
		stack = frames
	}
	return func() { panic(&Panic{Value: value, Stack: stack}) }
}

// hedgePanicked handles a hedge's panic, which decides the call unless the race is decided. The
// hedge panicked while the runner was doing a. A hedge that panics before it is sent counts as
// sent.
func (x *runner) hedgePanicked(a Actions, crash func()) {
	if a.Ask > 0 {
		a = x.handle(Event{Kind: Admitted}, nil)
	}
	if n := a.Prepare; n > 0 {
		h := &x.hedges[n]
		if h.cancel == nil {
			h.cancel = func(error) {}
		}
		if a = x.handle(Event{Kind: Prepared}, nil); a.Start > 0 {
			x.leave()
		}
	}
	n := a.Start
	if n == 0 { // the call was over
		x.policy.LoserPanicked()
		return
	}
	x.hedges[n].crash = crash
	x.cancel(only(n))
	x.handle(Event{Kind: Ended, Attempt: n, End: Panicked}, nil)
}

// Panic is the value of a call's panic if a hedge has panicked.
type Panic struct {
	// Value is the value of the hedge's panic.
	Value any
	// Stack is the stack of the hedge's goroutine at the panic, as [debug.Stack] formats it.
	Stack []byte
}

// Error returns the value and the stack: the Go runtime prints both if the panic is not recovered.
func (p *Panic) Error() string {
	return fmt.Sprintf("hedge: panic in an attempt: %v\n\n%s", p.Value, p.Stack)
}

func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
