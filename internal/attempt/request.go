package attempt

import (
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// MaxCopy is the encoded size in bytes up to which a request is copied for hedges.
//
// If the primary answers while the request is being copied, the call has to wait for the copy, because the caller may change
// its request after the call. MaxCopy bounds that wait: copying 1 MiB takes about 0.1 ms in one piece, and some 3 ms in messages of
// twenty bytes each. A hedge of a larger request would take longer on the network than most calls take.
const MaxCopy = 1 << 20

// Request is a call's request, which hedges send again. Its methods must not overlap.
type Request struct {
	caller any
	copied any // what all hedges send, instead of the caller's
}

// NewRequest takes the caller's request. It does not examine the request, so a call that needs no hedge pays nothing.
func NewRequest(req any) Request { return Request{caller: req} }

// Replayable reports whether hedges can send the request too. A protobuf message must not be larger than [MaxCopy]. Any other
// request must be repeatable. Attempts may be sending the request at the same time.
func (r *Request) Replayable() bool {
	if r.caller == nil || r.copied != nil {
		return true
	}
	if k := kindOf(reflect.TypeOf(r.caller)); k.form == opaque {
		return k.repeatable
	}
	return safely(func() bool { return proto.Size(asProto(r.caller)) <= MaxCopy })
}

// safely returns what f returns; false if a message of the caller's makes it panic.
func safely(f func() bool) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return f()
}

// Shared reports whether hedges send the caller's own request. The call must then not return before they have ended.
func (r *Request) Shared() bool {
	return r.caller == nil || kindOf(reflect.TypeOf(r.caller)).form == opaque
}

// Message returns what hedges send: one copy for all hedges, because none of them changes it, or the caller's request
// if that is shared. It returns false if copying fails.
func (r *Request) Message() (any, bool) {
	if r.Shared() {
		return r.caller, true
	}
	if r.copied == nil {
		var ok bool
		if r.copied, ok = copyOf(r.caller); !ok {
			return nil, false
		}
	}
	return r.copied, true
}

// copyOf returns a deep copy of a protobuf message; false if copying it panics. Attempts may be sending it at the same time.
func copyOf(m any) (copied any, ok bool) {
	ok = safely(func() bool {
		whole := proto.Clone(asProto(m))
		if _, ok := m.(proto.Message); ok {
			copied = whole
		} else {
			copied = protoadapt.MessageV1Of(whole)
		}
		return true
	})
	return copied, ok
}
