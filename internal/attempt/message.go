// Package attempt makes what attempts of one call must not share, so that they can run at the same time: a copy of the
// request, a reply to receive into, and call options that do not write to the caller's memory.
package attempt

import (
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Reply makes messages of the type of a caller's reply, and moves one of them to that reply. NewReply reads all that it needs,
// because gRPC may write to the reply as soon as the primary runs.
type Reply struct {
	caller any
	proto  protoreflect.MessageType // nil for a message that is moved as a Go value
	kind   *kind
}

// NewReply takes the caller's reply. Call it on the caller's goroutine, before the first attempt. It returns false if a hedge
// cannot receive into another message that is then moved to the reply.
//
// A protobuf message can always be moved. Any other reply is decoded into a new zero value, which is then copied. So the reply
// must be a pointer to a zero value: if the caller has set a field, its codec may need that. And its type must be movable.
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
		return r, r.kind.movable && v.Elem().IsZero()
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

// Take moves m, which Make has made, to the caller's reply, and replaces all that the reply held. No attempt may use the
// two messages any more.
func (r *Reply) Take(m any) {
	if r.proto != nil {
		dst := r.caller.(proto.Message)
		proto.Reset(dst)
		proto.Merge(dst, m.(proto.Message))
		return
	}
	reflect.ValueOf(r.caller).Elem().Set(reflect.ValueOf(m).Elem())
}

// IsEmpty reports whether m, which Make has made, has received nothing, or an empty message.
func (r *Reply) IsEmpty(m any) bool {
	if r.proto != nil {
		return proto.Size(m.(proto.Message)) == 0
	}
	return reflect.ValueOf(m).Elem().IsZero()
}

// Content returns a copy of what the caller's reply holds, nil if it is empty. No attempt may be receiving into it yet.
// For an empty protobuf message it does not allocate.
func (r *Reply) Content() any {
	if r.proto != nil {
		if proto.Size(r.caller.(proto.Message)) == 0 {
			return nil
		}
		if copied, ok := copyOf(r.caller); ok {
			return copied
		}
		return r.caller
	}
	v := reflect.ValueOf(r.caller).Elem()
	if v.IsZero() {
		return nil
	}
	copied := reflect.New(v.Type())
	copied.Elem().Set(v)
	return copied.Interface()
}

// Restore puts the content back into the caller's reply. No attempt may use the reply any more. A protobuf message that still
// has this content is not touched, because the caller may have kept pointers into it.
func (r *Reply) Restore(content any) {
	if content == nil {
		content = r.Make()
	}
	if r.proto == nil || !proto.Equal(r.caller.(proto.Message), content.(proto.Message)) {
		r.Take(content)
	}
}
