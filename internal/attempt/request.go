package attempt

import (
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// MaxCopy is the size in bytes up to which a request is copied for hedges. The size is about that in memory: what strings
// and bytes hold, 8 for each other value, and 64 on top for each message and each entry of a list or map that is no number.
//
// A caller owns its request again when its call returns, so a call whose primary answers while the request is copied waits
// for that copy. This bounds the wait: a mebibyte takes some 0.1 ms in one piece, and 1 ms in as many pieces as it can have.
// A hedge of a larger request would take the network longer than most calls take.
const MaxCopy = 1 << 20

const perMessage = 64

// Request is a call's request, for hedges to repeat. Its methods must not overlap.
type Request struct {
	caller any
	copied any // what all hedges send, instead of the caller's
}

// NewRequest takes the caller's request. It does not look at it, so that a call that needs no hedge pays nothing.
func NewRequest(req any) Request { return Request{caller: req} }

// Replayable reports whether hedges can send the request too: it can be copied and is not larger than [MaxCopy], or it is
// of another kind and can be encoded by several attempts. Attempts may be sending it meanwhile.
func (r *Request) Replayable() bool {
	if r.caller == nil || r.copied != nil {
		return true
	}
	k := kindOf(reflect.TypeOf(r.caller))
	if k.form == opaque {
		return k.repeats
	}
	return fits(r.caller)
}

// Shared reports whether hedges send the caller's own request, so that its memory is not the caller's again before they
// have let go of it.
func (r *Request) Shared() bool { return !Copyable(r.caller) }

// Repeat returns what a hedge sends: one copy, the same for all hedges, as nobody writes to it, or the caller's request if
// it is shared. It is false if the request turns out not to be copyable after all.
func (r *Request) Repeat() (any, bool) {
	if r.Shared() {
		return r.caller, true
	}
	if r.copied == nil {
		copied, ok := CopyRequest(r.caller)
		if !ok {
			return nil, false
		}
		r.copied = copied
	}
	return r.copied, true
}

// Copyable reports whether CopyRequest can copy messages like req.
func Copyable(req any) bool {
	return req != nil && kindOf(reflect.TypeOf(req)).form != opaque
}

// CopyRequest returns a deep copy of a request, or false and the request itself if it cannot be copied: it is no protobuf
// message, not in full, or it panics. Attempts may be sending the request meanwhile.
func CopyRequest(req any) (copied any, ok bool) {
	if !Copyable(req) {
		return req, false
	}
	defer func() {
		if recover() != nil {
			copied, ok = req, false
		}
	}()
	m, _ := asProto(req)
	m = proto.Clone(m)
	if _, ok := req.(proto.Message); ok {
		return m, true
	}
	return protoadapt.MessageV1Of(m), true
}

// fits reports whether the message is within MaxCopy, and looks at no more of it than that.
func fits(req any) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	m, _ := asProto(req)
	left := room(MaxCopy)
	return left.message(m.ProtoReflect())
}

// room is how many bytes are left. Methods take what a value needs and report whether it was there.
type room int

func (left *room) take(n int) bool {
	*left -= room(n)
	return *left >= 0
}

func (left *room) message(m protoreflect.Message) bool {
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

func (left *room) list(field protoreflect.FieldDescriptor, l protoreflect.List) {
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

func (left *room) value(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
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
