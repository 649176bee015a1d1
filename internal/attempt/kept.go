package attempt

import (
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxPooled is the largest encoded size in bytes of a request that is kept in pooled memory.
const maxPooled = 64 << 10

// Kept is a request of a stream, kept for hedges that may never be sent: encoded in pooled memory,
// or as a copy.
type Kept struct {
	of     protoreflect.MessageType // of the encoded message
	data   []byte
	copied any // in place of both
}

var kepts = sync.Pool{New: func() any { return new(Kept) }}

// Keep keeps a request, or returns nil if it is not replayable. Keep is faster than a copy, and
// usually allocates nothing. Attempts may send the request at the same time.
func (o *Options) Keep(req any) *Kept {
	if m, _ := o.protobuf(req); m != nil && o.Codec() == nil { // other codecs may tell nil from empty
		k := kepts.Get().(*Kept)
		if safely(func() { k.encode(m) }) && k.of != nil {
			return k
		}
		k.Free()
	}
	if copied := o.Copy(req); copied != nil {
		return &Kept{copied: copied}
	}
	return nil
}

func (k *Kept) encode(m proto.Message) {
	if proto.Size(m) > maxPooled {
		return
	}
	var err error
	if k.data, err = (proto.MarshalOptions{AllowPartial: true}).MarshalAppend(k.data[:0], m); err == nil {
		k.of = m.ProtoReflect().Type()
	}
}

// Message returns the request for one hedge; nil if k is nil or cannot be decoded.
func (k *Kept) Message() (request any) {
	switch {
	case k == nil:
		return nil
	case k.of == nil:
		return k.copied
	}
	safely(func() {
		m := k.of.New().Interface()
		// A copy, because methods of a message may keep the data.
		if err := (proto.UnmarshalOptions{AllowPartial: true}).Unmarshal(slices.Clone(k.data), m); err == nil {
			request = m
		}
	})
	return request
}

// Free returns the memory to the pool. k must not be used afterwards, and may be nil.
func (k *Kept) Free() {
	if k != nil {
		k.of, k.copied = nil, nil
		kepts.Put(k)
	}
}
