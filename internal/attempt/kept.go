package attempt

import (
	"math/bits"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxPooled is the encoded size in bytes up to which a request is kept in memory that requests share.
const maxPooled = 64 << 10

// Kept is a request of a stream, kept for hedges that may never be sent: encoded, in memory that the next stream's request uses, or a
// copy.
type Kept struct {
	of     protoreflect.MessageType // of the encoded message
	data   []byte
	copied any // in place of both
	from   int // the pool of the memory
}

// kepts are pools of memory for requests of up to 1, 4, 16 and 64 KiB. With one pool, few large requests would in time make the memory
// of all the small ones large.
var kepts [4]sync.Pool

// poolOf is the pool for a request of the given encoded size; none for a larger one.
func poolOf(size int) int { return (max(bits.Len(uint(max(size, 1)-1)), 9) - 9) / 2 }

// Keep keeps a request; nil if it is not replayable. It takes less time than a copy, and usually allocates nothing. Attempts may be
// sending the request at the same time.
func (o *Options) Keep(req any) *Kept {
	if m, _ := o.protobuf(req); m != nil && o.Codec() == nil { // another codec may look at what an encoding loses: nil or empty
		var k *Kept
		if safely(func() { k = encoded(m) }) && k != nil {
			return k
		}
	}
	if copied := o.Copy(req); copied != nil {
		return &Kept{copied: copied}
	}
	return nil
}

// encoded returns nil for a request that is too large, or cannot be encoded.
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
	if k.data, err = (proto.MarshalOptions{AllowPartial: true}).MarshalAppend(k.data[:0], m); err != nil {
		return nil
	}
	k.of = m.ProtoReflect().Type()
	return k
}

// Message returns the request for one hedge; nil if k is nil, or cannot be decoded.
func (k *Kept) Message() (request any) {
	switch {
	case k == nil:
		return nil
	case k.of == nil:
		return k.copied
	}
	safely(func() {
		m := k.of.New().Interface()
		// The data is copied, as methods of a message may keep it.
		if err := (proto.UnmarshalOptions{AllowPartial: true}).Unmarshal(slices.Clone(k.data), m); err == nil {
			request = m
		}
	})
	return request
}

// Free gives the memory to other requests. k must not be used again, and may be nil.
func (k *Kept) Free() {
	if k != nil && k.of != nil {
		k.of = nil
		kepts[k.from].Put(k)
	}
}
