// Package attempt makes what attempts of one call must not share, so that they can run at the same time: a copy of the
// request, a reply to receive into, and call options that do not write to the caller's memory.
package attempt

import (
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// MaxCopy is the encoded size in bytes up to which a request is copied for hedges.
//
// If the primary answers while the request is being copied, the call has to wait for the copy, because the caller may change
// its request after the call. MaxCopy bounds that wait: copying 1 MiB takes about 0.1 ms in one piece, and some 3 ms in messages of
// twenty bytes each. A hedge of a larger request would take longer on the network than most calls take.
const MaxCopy = 1 << 20

// protobuf returns a message of the caller's as protobuf sees it, if a copy that protobuf makes has all that the codec of the
// call sends; nil otherwise. A type that embeds a message has all its methods, but more state. A message of the older API may keep
// its state anywhere, and only gRPC's own codec is known to send no more of it than protobuf sees.
func (o *Options) protobuf(m any) (message proto.Message, older bool) {
	safely(func() {
		switch m := m.(type) {
		case proto.Message:
			if m.ProtoReflect().Interface() == m {
				message = m
			}
		case protoadapt.MessageV1:
			if older = o.Codec() == nil; older {
				message = protoadapt.MessageV2Of(m)
			}
		}
	})
	return message, older
}

// safely reports whether f returns. It does not if the methods of a message or a stream make it panic.
func safely(f func()) (ok bool) {
	defer func() { _ = recover() }()
	f()
	return true
}

// Replayable reports whether [Options.Copy] copies the request: a protobuf message of [MaxCopy] at most. Attempts may be sending
// it at the same time.
func (o *Options) Replayable(req any) bool {
	m, _ := o.protobuf(req)
	small := false
	return m != nil && safely(func() { small = proto.Size(m) <= MaxCopy }) && small
}

// Copy returns a deep copy of a request that is replayable; nil if copying it panics or loses something. Attempts may be sending the
// request at the same time.
func (o *Options) Copy(req any) (copied any) {
	m, older := o.protobuf(req)
	safely(func() {
		switch whole := proto.Clone(m); {
		case !older:
			copied = whole
		case proto.Size(whole) == proto.Size(m): // it may copy itself, and know how to or not
			copied = protoadapt.MessageV1Of(whole)
		}
	})
	return copied
}

// Reply makes messages of the type of a caller's reply, and moves one of them to that reply.
type Reply struct {
	caller any
	of     protoreflect.MessageType
	older  bool // of the older API
}

// Reply takes the caller's reply. Call it on the caller's goroutine, before the first attempt: gRPC may write to the reply as soon as
// the primary runs. It returns false if a hedge cannot receive into another message that is then moved to the reply: if that is
// no protobuf message, or one of the older API that is not empty.
func (o *Options) Reply(reply any) (Reply, bool) {
	m, older := o.protobuf(reply)
	v := reflect.ValueOf(reply)
	if m == nil || v.Kind() != reflect.Pointer || v.IsNil() || older && !v.Elem().IsZero() {
		return Reply{}, false
	}
	return Reply{caller: reply, of: m.ProtoReflect().Type(), older: older}, true
}

func (r *Reply) Make() any {
	m := r.of.New().Interface()
	if r.older {
		return protoadapt.MessageV1Of(m)
	}
	return m
}

// Take moves m, which Make has made, to the caller's reply, and replaces all that the reply held. No attempt may use the two
// messages any more.
func (r *Reply) Take(m any) {
	if r.older {
		reflect.ValueOf(r.caller).Elem().Set(reflect.ValueOf(m).Elem())
		return
	}
	dst := r.caller.(proto.Message)
	proto.Reset(dst)
	proto.Merge(dst, m.(proto.Message))
}

// Content returns a copy of what the caller's reply holds, nil if it is empty. No attempt may be receiving into it yet.
// For an empty reply it does not allocate.
func (r *Reply) Content() any {
	if r.older || proto.Size(r.caller.(proto.Message)) == 0 {
		return nil
	}
	return proto.Clone(r.caller.(proto.Message))
}

// Restore puts the content back into the caller's reply. No attempt may use the reply any more. A protobuf message that still
// has this content is not touched, because the caller may have kept pointers into it.
func (r *Reply) Restore(content any) {
	if content == nil {
		content = r.Make()
	}
	if r.older || !proto.Equal(r.caller.(proto.Message), content.(proto.Message)) {
		r.Take(content)
	}
}
