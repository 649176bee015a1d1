package attempt

import (
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// MaxCopy is the size in bytes up to which a request is copied for hedges. The size is an estimate of the memory: the length of
// strings and bytes, 8 for each other value, and 64 more for each message and each entry of a list or map that is no number.
//
// If the primary answers while the request is being copied, the call has to wait for the copy, because the caller may change
// its request after the call. MaxCopy bounds that wait: copying 1 MiB takes about 0.1 ms in one piece, and 1 ms in the most
// pieces that it can have. A hedge of a larger request would take longer on the network than most calls take.
const MaxCopy = 1 << 20

const perMessage = 64

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
	return fits(r.caller)
}

// Light reports whether the request is certainly small enough for Replayable. That takes as long as a part of encoding it, so it
// is for a request that has just been sent. A byte on the wire stands for at most perMessage bytes in memory.
func (r *Request) Light() bool {
	m, ok := r.caller.(proto.Message)
	return ok && !r.Shared() && safely(func() bool { return proto.Size(m) < MaxCopy/perMessage })
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

// fits reports whether the size of a message is at most MaxCopy. It stops examining the message there.
func fits(req any) bool {
	return safely(func() bool {
		left := bytesLeft(MaxCopy)
		return left.message(asProto(req).ProtoReflect())
	})
}

// bytesLeft is how many bytes are left of MaxCopy. Its methods subtract the size of a value, and report whether that was left.
type bytesLeft int

func (left *bytesLeft) take(n int) bool {
	*left -= bytesLeft(n)
	return *left >= 0
}

func (left *bytesLeft) message(m protoreflect.Message) bool {
	if !m.IsValid() {
		return true
	}
	if !left.take(perMessage + len(m.GetUnknown())) {
		return false
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			v.Map().Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
				return left.take(perMessage+len(key.String())) && left.value(field.MapValue(), v)
			})
		case field.IsList():
			left.list(field, v.List())
		default:
			left.value(field, v)
		}
		return *left >= 0
	})
	return *left >= 0
}

func (left *bytesLeft) list(field protoreflect.FieldDescriptor, l protoreflect.List) {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind, protoreflect.StringKind, protoreflect.BytesKind:
		for i := range l.Len() {
			if !left.take(perMessage) || !left.value(field, l.Get(i)) {
				return
			}
		}
	default:
		left.take(8 * l.Len())
	}
}

func (left *bytesLeft) value(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return left.message(v.Message())
	case protoreflect.StringKind:
		return left.take(len(v.String()))
	case protoreflect.BytesKind:
		return left.take(len(v.Bytes()))
	}
	return left.take(8)
}
