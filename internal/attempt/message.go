// Package attempt makes what each attempt of a call needs of its own, so that attempts can run side by side
// and only one of them reaches the caller: a copy of the request, a message to receive into, and call options
// that write somewhere else than to the caller.
package attempt

import (
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Reply makes messages of the type of a caller's reply. All that it needs to know of the reply it learns at once,
// because as soon as the primary runs, gRPC may be writing to it.
type Reply struct {
	caller any
	proto  protoreflect.MessageType // nil for a message that is moved as a Go value
	kind   *kind
}

// NewReply takes the caller's reply, on the caller's goroutine and before the first attempt. It is false if an attempt
// cannot receive elsewhere and have the result moved there.
//
// A protobuf message can always be moved. Another reply is decoded into a new zero value, which is then copied, so it must
// be a pointer to a zero value itself: what a caller has put there, a descriptor for example, may be what its codec needs.
// And it must be of a type that can be copied, with no lock, no part that may refer to another part, and no reference
// counted buffer.
func NewReply(reply any) (Reply, bool) {
	v := reflect.ValueOf(reply)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return Reply{}, false
	}
	r := Reply{caller: reply, kind: kindOf(v.Type())}
	switch r.kind.form {
	case generated:
		r.proto = r.kind.message
	case dynamic:
		r.proto = reply.(proto.Message).ProtoReflect().Type()
	case opaque:
		return r, r.kind.moves && v.Elem().IsZero()
	}
	return r, true
}

// Make returns an empty message of the reply's type.
func (r *Reply) Make() any {
	if r.proto != nil {
		return r.proto.New().Interface()
	}
	return reflect.New(r.kind.t.Elem()).Interface()
}

// Take has the caller's reply hold what m holds, which Make made, and nothing of what it held. No attempt may
// use either any more.
func (r *Reply) Take(m any) {
	if r.proto != nil {
		dst := r.caller.(proto.Message)
		proto.Reset(dst)
		proto.Merge(dst, m.(proto.Message))
		return
	}
	reflect.ValueOf(r.caller).Elem().Set(reflect.ValueOf(m).Elem())
}
