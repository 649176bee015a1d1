// Package attempt gives each attempt of a call its own state, so that attempts can run at the same
// time: a copy of the request, a reply to receive into, and call options that do not write to the
// caller's memory.
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

// MaxCopy is the largest encoded size in bytes of a request that is copied for hedges.
//
// If the primary answers during the copy, the call waits for the copy, because the caller may
// change its request after the call. MaxCopy bounds that wait. On the network, a larger request
// takes longer than most calls.
const MaxCopy = 1 << 20

// protobuf returns m as a message, or reports that m is a pointer to a message of the older API. It
// returns neither for a type that embeds a message: a copy would lack the fields besides the
// message, which the call's codec may send.
func (o *Options) protobuf(m any) (message proto.Message, older bool) {
	switch m := m.(type) {
	case proto.Message:
		Safely(func() {
			if m.ProtoReflect().Interface() == m {
				message = m
			}
		})
	case protoadapt.MessageV1:
		older = reflect.TypeOf(m).Kind() == reflect.Pointer && o.Codec == nil
	}
	return message, older
}

// Safely reports whether f returns without a panic of a message's or a stream's methods.
func Safely(f func()) (ok bool) {
	defer func() { _ = recover() }()
	f()
	return true
}

// Replayable reports whether [Options.Copy] may copy the request: a protobuf message of [MaxCopy]
// at most. Only Copy checks the size of a message of the older API. Attempts may send the request
// at the same time.
func (o *Options) Replayable(req any) bool {
	m, older := o.protobuf(req)
	return older || fits(m)
}

// Replayable is [Options.Replayable] with gRPC's own codec.
func Replayable(req any) bool { return new(Options).Replayable(req) }

func fits(m proto.Message) (small bool) {
	Safely(func() { small = m != nil && proto.Size(m) <= MaxCopy })
	return small
}

// Copy returns a deep copy of a request; nil if the request is not replayable, or copying it
// panics. Attempts may send the request at the same time.
func (o *Options) Copy(req any) (copied any) {
	m, older := o.protobuf(req)
	Safely(func() {
		switch {
		case older:
			copied = decoded(req.(protoadapt.MessageV1))
		case fits(m):
			copied = proto.Clone(m)
		}
	})
	return copied
}

// decoded encodes and decodes a message of the older API. protobuf would copy it by the type's own
// methods, which may copy less than they encode, or share the caller's memory. decoded returns nil
// if the message is too large, encodes differently afterwards, or has fields that are not encoded.
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

// Reply makes the messages into which hedges receive, and moves the winner's to the caller's reply.
type Reply struct {
	caller any
	of     protoreflect.MessageType // nil for the older API
}

// Reply takes the caller's reply. Call it on the caller's goroutine, before the first attempt: gRPC
// may write to the reply as soon as the primary runs. It returns false if a hedge's own message
// could not be moved to the reply afterwards:
//
//   - the reply is not a protobuf message,
//   - the reply holds data that the call's codec may leave in place, or
//   - the reply is of the older API and not empty.
func (o *Options) Reply(reply any) (Reply, bool) {
	m, older := o.protobuf(reply)
	v := reflect.ValueOf(reply)
	switch {
	case m == nil && !older || v.Kind() != reflect.Pointer || v.IsNil():
		return Reply{}, false
	case older:
		return Reply{caller: reply}, v.Elem().IsZero()
	}
	return Reply{caller: reply, of: m.ProtoReflect().Type()}, o.Codec == nil || proto.Size(m) == 0
}

// Make returns an empty message; nil for the zero Reply.
func (r *Reply) Make() any {
	switch {
	case r.of != nil:
		return r.of.New().Interface()
	case r.caller != nil:
		return reflect.New(reflect.TypeOf(r.caller).Elem()).Interface()
	}
	return nil
}

// Take moves m, a message of Make, to the caller's reply, and replaces all content of the reply. No
// attempt may still use the two messages.
func (r *Reply) Take(m any) {
	if r.of == nil {
		reflect.ValueOf(r.caller).Elem().Set(reflect.ValueOf(m).Elem())
		return
	}
	dst := r.caller.(proto.Message)
	proto.Reset(dst)
	proto.Merge(dst, m.(proto.Message))
}

// Content returns a copy of the caller's reply, or nil, without an allocation, if the reply is
// empty. No attempt may be receiving into it yet.
func (r *Reply) Content() any {
	if r.of == nil || proto.Size(r.caller.(proto.Message)) == 0 {
		return nil
	}
	return proto.Clone(r.caller.(proto.Message))
}

// Restore puts content back into the caller's reply, which no attempt may still use. A protobuf
// message with this content stays untouched, because the caller may have kept pointers into it.
func (r *Reply) Restore(content any) {
	if content == nil {
		content = r.Make()
	}
	if r.of == nil || !proto.Equal(r.caller.(proto.Message), content.(proto.Message)) {
		r.Take(content)
	}
}
