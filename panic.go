package hedge

import "github.com/grpchedge/hedge/internal/race"

// Panic is what a call panics with, on its caller's goroutine, when one of its hedges has panicked before the call was
// decided. It is always a pointer:
//
//	type Panic struct {
//		Value any    // what the hedge panicked with
//		Stack []byte // the stack of the hedge's goroutine, as runtime/debug.Stack formats it, without its first line
//	}
//
// A *Panic is an error. Error returns the value and the stack. Unwrap returns the value if that is an error, so that
// [errors.Is] and [errors.As] find it. A panic of the primary is on the caller's goroutine by itself, and its value is as
// it was.
type Panic = race.Panic
