// Package attempt gives each attempt of a call its own state, so that attempts can run at the same
// time: a copy of the request, a reply to receive into, and call options that do not write to the
// caller's memory.
package attempt

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/grpchedge/hedge/internal/race"
)

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

// Replayable reports whether [Options.Copy] may copy the request: a protobuf message of [race.MaxRequest]
// at most. Only Copy checks the size of a message of the older API. Attempts may send the request
// at the same time.
func (o *Options) Replayable(req any) bool {
	m, older := o.protobuf(req)
	return older || fits(m)
}

// Replayable is [Options.Replayable] with gRPC's own codec.
func Replayable(req any) bool { return new(Options).Replayable(req) }

func fits(m proto.Message) (small bool) {
	Safely(func() { small = m != nil && proto.Size(m) <= race.MaxRequest })
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
	if err != nil || len(sent) > race.MaxRequest {
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

// Codec is the codec that a call's options choose in place of gRPC's own. It can also receive a
// message as [Bytes].
type Codec struct {
	coder
	name string
}

// Bytes is a message that a [Codec] receives as bytes, because the type of the caller's message is
// not known yet.
type Bytes struct{ data []byte }

type coder interface {
	Marshal(v any) (mem.BufferSlice, error)
	Unmarshal(data mem.BufferSlice, v any) error
}

// CodecOf returns the codec that gRPC chooses for a call with the given options. It returns nil for
// gRPC's own codec, which can encode a message again without a loss, and if the chosen codec does
// not exist: gRPC then fails the call.
func CodecOf(opts []grpc.CallOption) *Codec {
	var chosen coder
	name, subtype := "", ""
	for _, opt := range opts {
		switch opt := opt.(type) {
		case grpc.ForceCodecV2CallOption:
			if chosen = opt.CodecV2; chosen != nil {
				name = opt.CodecV2.Name()
			}
		case grpc.ForceCodecCallOption:
			chosen, name = v1{opt.Codec}, opt.Codec.Name()
		case grpc.CustomCodecCallOption:
			chosen, name = v1{opt.Codec}, ""
		case grpc.ContentSubtypeCallOption:
			subtype = opt.ContentSubtype
		}
	}
	if subtype = cmp.Or(subtype, protocodec.Name); chosen == nil && (subtype != protocodec.Name || !defaultIsOwn()) {
		if c := encoding.GetCodec(subtype); c != nil {
			chosen = v1{c}
		} else if c := encoding.GetCodecV2(subtype); c != nil {
			chosen = c
		}
	}
	if chosen == nil {
		return nil
	}
	return &Codec{coder: chosen, name: name}
}

// defaultIsOwn reports whether the default codec is gRPC's own. Programs register codecs at start.
var defaultIsOwn = sync.OnceValue(func() bool {
	t, own := reflect.TypeOf(encoding.GetCodecV2(protocodec.Name)), "google.golang.org/grpc/encoding/proto"
	return encoding.GetCodec(protocodec.Name) == nil && t.Kind() == reflect.Pointer && t.Elem().PkgPath() == own
})

// Option makes gRPC use the codec, with the content-subtype that the call has without it.
func (c *Codec) Option() grpc.CallOption { return grpc.ForceCodecV2(c) }

// Name implements [encoding.CodecV2]. gRPC derives the content-subtype from it, unless an option
// sets the subtype.
func (c *Codec) Name() string { return c.name }

func (c *Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if b, ok := v.(*Bytes); ok {
		b.data = data.Materialize() // a copy: gRPC frees data
		return nil
	}
	return c.coder.Unmarshal(data, v)
}

// Decode decodes held, a message that an attempt has received, into another message. held is a
// *Bytes or, if c is nil, a protobuf message.
func (c *Codec) Decode(held, into any) error {
	var data mem.BufferSlice
	var err error
	coder := coder(encoding.GetCodecV2(protocodec.Name))
	if b, ok := held.(*Bytes); ok {
		coder, data = c.coder, mem.BufferSlice{mem.SliceBuffer(b.data)}
	} else {
		data, err = coder.Marshal(held)
	}
	if err == nil {
		err = coder.Unmarshal(data, into)
		data.Free()
	}
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// v1 adapts a codec of gRPC's older interfaces.
type v1 struct {
	older interface {
		Marshal(v any) ([]byte, error)
		Unmarshal(data []byte, v any) error
	}
}

func (v v1) Marshal(m any) (mem.BufferSlice, error) {
	data, err := v.older.Marshal(m)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

func (v v1) Unmarshal(data mem.BufferSlice, m any) error {
	return v.older.Unmarshal(data.Materialize(), m)
}
