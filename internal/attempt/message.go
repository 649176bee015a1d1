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
	proto  protoreflect.MessageType // nil for a message that is no generated or dynamic one
	kind   *kind
}

// NewReply takes the caller's reply. Call it on the caller's goroutine, before the first attempt. It returns false if a hedge
// cannot receive into another message that is then moved to the reply.
//
// A protobuf message can always be moved. Any other reply must be a pointer to a zero value, because a hedge decodes into a new
// zero value: if the caller has set a field, its codec may need that.
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
		return r, v.Elem().IsZero()
	}
	return r, true
}

func (r *Reply) Make() any {
	if r.proto != nil {
		return r.proto.New().Interface()
	}
	return reflect.New(r.kind.t.Elem()).Interface()
}

// Codec returns the codec of a hedge that receives into m, which Make has made; nil if m can be moved without its bytes.
func (r *Reply) Codec(o *Options, m any) *Codec {
	if r.kind.form != opaque {
		return nil
	}
	c := o.Codec()
	c.Keep(m)
	return c
}

// Take moves m, which Make has made and a hedge has received with the codec c, to the caller's reply, and replaces all that
// the reply held. No attempt may use the two messages any more.
//
// A message that protobuf does not describe is decoded anew, because a copy of it may refer to m. If an interceptor has changed
// m since it was received, its content is copied nevertheless.
func (r *Reply) Take(m any, c *Codec) error {
	if r.proto != nil {
		dst := r.caller.(proto.Message)
		proto.Reset(dst)
		proto.Merge(dst, m.(proto.Message))
		return nil
	}
	dst := reflect.ValueOf(r.caller).Elem()
	if r.kind.form == opaque && c != nil && c.has {
		dst.SetZero() // a primary that has lost may have received into it
		if err := c.Decode(m, r.caller); err != nil || reflect.DeepEqual(r.caller, m) {
			return err
		}
		again := r.Make()
		if err := c.Decode(m, again); err != nil || !reflect.DeepEqual(r.caller, again) {
			return err // they are never equal, so that nobody knows whether m has changed
		}
	}
	dst.Set(reflect.ValueOf(m).Elem())
	return nil
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
		_ = r.Take(content, nil)
	}
}
