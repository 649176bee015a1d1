package race

import (
	"bytes"
	"fmt"
	"runtime/debug"
)

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
