// Package attempt makes what each attempt of a call needs of its own, so that attempts can run side by side
// and only one of them reaches the caller: a copy of the request, a message to receive into, and call options
// that write somewhere else than to the caller.
package attempt

import (
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Reply makes messages of the type of a caller's reply. All that it needs to know of the reply it learns at once,
// because as soon as the primary runs, gRPC may be writing to it.
type Reply struct {
	caller any
	proto  protoreflect.MessageType // nil for a message of another kind
	other  reflect.Type             // what the reply points to, if proto is nil
}

// NewReply takes the caller's reply, on the caller's goroutine and before the first attempt. It is false if no
// message can be moved there: the reply is neither a protobuf message, of whatever API, nor a non-nil pointer.
func NewReply(reply any) (Reply, bool) {
	if m, ok := reply.(proto.Message); ok {
		r := m.ProtoReflect()
		return Reply{caller: reply, proto: r.Type()}, r.IsValid()
	}
	v := reflect.ValueOf(reply)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return Reply{}, false
	}
	return Reply{caller: reply, other: v.Type().Elem()}, true
}

// Make returns an empty message of the reply's type.
func (r *Reply) Make() any {
	if r.proto != nil {
		return r.proto.New().Interface()
	}
	return reflect.New(r.other).Interface()
}

// Take has the caller's reply hold what m holds, which Make made, and nothing of what it held. No attempt may
// use either any more.
func (r *Reply) Take(m any) {
	if dst, ok := asProto(r.caller); ok {
		src, _ := asProto(m)
		proto.Reset(dst)
		proto.Merge(dst, src)
		return
	}
	reflect.ValueOf(r.caller).Elem().Set(reflect.ValueOf(m).Elem())
}

// CopyRequest returns a deep copy of a request, or false and the request itself when it is of a kind that
// cannot be copied: not a protobuf message. Attempts may be sending the request meanwhile.
func CopyRequest(req any) (any, bool) {
	m, ok := asProto(req)
	if !ok {
		return req, false
	}
	m = proto.Clone(m)
	if _, ok := req.(proto.Message); ok {
		return m, true
	}
	return protoadapt.MessageV1Of(m), true
}

// Copyable reports whether CopyRequest can copy req.
func Copyable(req any) bool {
	_, ok := asProto(req)
	return ok
}

// asProto returns the message that gRPC's protobuf codec would encode.
func asProto(v any) (proto.Message, bool) {
	switch m := v.(type) {
	case proto.Message:
		return m, true
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m), true
	}
	return nil, false
}
