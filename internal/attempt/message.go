// Package attempt makes what attempts of one call must not share, so that they can run at the same time: a copy of the
// request, a reply to receive into, and call options that do not write to the caller's memory.
package attempt

import (
	"bytes"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// MaxCopy is the encoded size in bytes up to which a request is copied for hedges.
//
// If the primary answers while the request is being copied, the call has to wait for the copy, because the caller may change
// its request after the call. MaxCopy bounds that wait. A hedge of a larger request would take longer on the network than most
// calls take.
const MaxCopy = 1 << 20

// protobuf returns a message of the caller's, or that it is a pointer to one of the older API, if a copy of it has all that the codec
// of the call sends. A type that embeds a message has all its methods, but more state.
func (o *Options) protobuf(m any) (message proto.Message, older bool) {
	switch m := m.(type) {
	case proto.Message:
		safely(func() {
			if m.ProtoReflect().Interface() == m {
				message = m
			}
		})
	case protoadapt.MessageV1:
		older = reflect.TypeOf(m).Kind() == reflect.Pointer && o.Codec() == nil
	}
	return message, older
}

// safely reports whether f returns. It does not if the methods of a message or a stream make it panic.
func safely(f func()) (ok bool) {
	defer func() { _ = recover() }()
	f()
	return true
}

// Replayable reports whether [Options.Copy] may copy the request: a protobuf message of [MaxCopy] at most. How large one of the
// older API is shows only then. Attempts may be sending it at the same time.
func (o *Options) Replayable(req any) bool {
	m, older := o.protobuf(req)
	return older || fits(m)
}

func fits(m proto.Message) (small bool) {
	safely(func() { small = m != nil && proto.Size(m) <= MaxCopy })
	return small
}

// Copy returns a deep copy of a request; nil if it is not replayable, or copying it panics. Attempts may be sending the request at the
// same time.
func (o *Options) Copy(req any) (copied any) {
	m, older := o.protobuf(req)
	safely(func() {
		switch {
		case older:
			copied = decoded(req.(protoadapt.MessageV1))
		case fits(m):
			copied = proto.Clone(m)
		}
	})
	return copied
}

// decoded returns what a server decodes from a message of the older API: protobuf would copy that by the type's own methods, which may
// copy less than they encode, or share the caller's memory. It is nil if that is too large, would be encoded in another way, or lacks
// fields that are not encoded.
func decoded(m protoadapt.MessageV1) any {
	of := reflect.TypeOf(m).Elem()
	if !allEncoded(of) {
		return nil
	}
	encode := proto.MarshalOptions{Deterministic: true}.Marshal
	sent, err := encode(protoadapt.MessageV2Of(m))
	if err != nil || len(sent) > MaxCopy {
		return nil
	}
	copied := reflect.New(of).Interface().(protoadapt.MessageV1)
	if err := proto.Unmarshal(slices.Clone(sent), protoadapt.MessageV2Of(copied)); err != nil {
		return nil
	}
	if again, err := encode(protoadapt.MessageV2Of(copied)); err != nil || !bytes.Equal(again, sent) {
		return nil
	}
	return copied
}

// allEncoded reports whether protobuf encodes all fields of a struct. It panics for another type.
func allEncoded(of reflect.Type) bool {
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Tag.Get("protobuf") == "" && f.Tag.Get("protobuf_oneof") == "" && !strings.HasPrefix(f.Name, "XXX_") {
			return false
		}
	}
	return true
}

// Reply makes messages of the type of a caller's reply, and moves one of them to that reply.
type Reply struct {
	caller any
	of     protoreflect.MessageType // nil for the older API
}

// Reply takes the caller's reply. Call it on the caller's goroutine, before the first attempt: gRPC may write to the reply as soon as
// the primary runs. It returns false if a hedge cannot receive into another message that is then moved to the reply: if that is
// no protobuf message, or holds something that the codec of the call may leave there, or is of the older API and not empty.
func (o *Options) Reply(reply any) (Reply, bool) {
	m, older := o.protobuf(reply)
	v := reflect.ValueOf(reply)
	switch {
	case m == nil && !older || v.Kind() != reflect.Pointer || v.IsNil():
		return Reply{}, false
	case older:
		return Reply{caller: reply}, v.Elem().IsZero()
	}
	return Reply{caller: reply, of: m.ProtoReflect().Type()}, o.Codec() == nil || proto.Size(m) == 0
}

func (r *Reply) Make() any {
	if r.of == nil {
		return reflect.New(reflect.TypeOf(r.caller).Elem()).Interface()
	}
	return r.of.New().Interface()
}

// Take moves m, which Make has made, to the caller's reply, and replaces all that the reply held. No attempt may use the two
// messages any more.
func (r *Reply) Take(m any) {
	if r.of == nil {
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
	if r.of == nil || proto.Size(r.caller.(proto.Message)) == 0 {
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
	if r.of == nil || !proto.Equal(r.caller.(proto.Message), content.(proto.Message)) {
		r.Take(content)
	}
}
