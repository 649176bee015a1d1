package hedge

import "github.com/grpchedge/hedge/internal/race"

// Panic is the value of the panic on the caller's goroutine when a hedge panics before the call is decided. The value is
// always a *Panic:
//
//	type Panic struct {
//		Value any    // what the hedge panicked with
//		Stack []byte // the stack of the hedge's goroutine, as runtime/debug.Stack formats it, without its first line
//	}
//
// A *Panic is an error. Error returns the value and the stack. Unwrap returns the value if that is an error, so that
// [errors.Is] and [errors.As] find it. A panic of the primary happens on the caller's goroutine, and its value is unchanged.
type Panic = race.Panic
