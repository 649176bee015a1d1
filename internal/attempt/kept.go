package attempt

import (
	"math/bits"
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
	from   int // the pool of the memory
}

// kepts are pools of memory for requests of up to 1, 4, 16 and 64 KiB. With a single pool, a few
// large requests would over time enlarge the memory of all small ones.
var kepts [4]sync.Pool

// poolOf returns the index of the pool for an encoded size of at most maxPooled.
func poolOf(size int) int { return (max(bits.Len(uint(max(size, 1)-1)), 9) - 9) / 2 }

// Keep keeps a request, or returns nil if it is not replayable. Keep is faster than a copy, and
// usually allocates nothing. Attempts may send the request at the same time.
func (o *CallOptions) Keep(req any) *Kept {
	if m, _ := o.protobuf(req); m != nil && o.Codec == nil { // other codecs may distinguish nil from empty
		var k *Kept
		if Safely(func() { k = encoded(m) }) && k != nil {
			return k
		}
	}
	if copied := o.Copy(req); copied != nil {
		return &Kept{copied: copied}
	}
	return nil
}

// encoded returns m encoded in pooled memory, or nil if m is too large or cannot be encoded.
func encoded(m proto.Message) *Kept {
	size := proto.Size(m)
	if size > maxPooled {
		return nil
	}
	pool := poolOf(size)
	k, _ := kepts[pool].Get().(*Kept)
	if k == nil {
		k = &Kept{from: pool}
	}
	var err error
	options := proto.MarshalOptions{AllowPartial: true, UseCachedSize: true}
	if k.data, err = options.MarshalAppend(k.data[:0], m); err != nil {
		return nil
	}
	k.of = m.ProtoReflect().Type()
	return k
}

// Message returns the request for one hedge; nil if k is nil or cannot be decoded.
func (k *Kept) Message() (request any) {
	switch {
	case k == nil:
		return nil
	case k.of == nil:
		return k.copied
	}
	Safely(func() {
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
	if k != nil && k.of != nil {
		k.of = nil
		kepts[k.from].Put(k)
	}
}
