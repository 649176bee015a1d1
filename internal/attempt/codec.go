package attempt

import (
	"cmp"
	"reflect"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

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
		opt, _ = plain(opt)
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
