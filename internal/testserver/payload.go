package testserver

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"

	testpb "github.com/grpchedge/hedge/proto"
)

// Reply is a reply of the test service in any of Go's protobuf APIs.
type Reply interface {
	GetId() uint64
	GetSequence() uint32
	GetBackend() uint32
	GetAttempt() uint32
	GetPayload() []byte
}

// Check returns an error if reply, message number sequence of its stream (0 for a unary call), does
// not answer req: its id must match, its size must be the requested one, and its payload must be
// the one that its other fields imply. If the request sets no size, any size is valid.
func Check(req *testpb.Request, sequence uint32, reply Reply) error {
	if got, want := reply.GetId(), req.GetId(); got != want {
		return fmt.Errorf("reply to request %d, want %d", got, want)
	}
	if got := reply.GetSequence(); got != sequence {
		return fmt.Errorf("reply to request %d: message %d of the stream, want %d", req.GetId(), got, sequence)
	}
	got := reply.GetPayload()
	if want := int(req.GetReplyBytes()); want > 0 && len(got) != want {
		return fmt.Errorf("reply to request %d: payload of %d bytes, want %d", req.GetId(), len(got), want)
	}
	want := payload(reply.GetId(), reply.GetSequence(), reply.GetBackend(), reply.GetAttempt(), len(got))
	if !bytes.Equal(got, want) {
		return fmt.Errorf("reply to request %d: payload is not that of attempt %d at backend %d",
			req.GetId(), reply.GetAttempt(), reply.GetBackend())
	}
	return nil
}

// chunk is the size up to which a payload is a slice of noise, and not allocated.
const chunk = 64 << 10

// noise is what payloads are cut from: two chunks, so that one may start
// anywhere in the first.
var noise = sync.OnceValue(func() []byte {
	rng := rand.NewPCG(1, 2)
	b := make([]byte, 2*chunk)
	for i := range b {
		b[i] = byte(rng.Uint64())
	}
	return b
})

// payload returns size bytes that depend on all its arguments. They are shared
// and must not be changed.
func payload(id uint64, sequence, backend, attempt uint32, size int) []byte {
	if size <= 0 {
		return nil
	}
	start := mix(id^mix(uint64(sequence)<<32|uint64(backend)<<8|uint64(attempt))) % chunk
	piece := noise()[start : start+chunk]
	if size <= chunk {
		return piece[:size]
	}
	return bytes.Repeat(piece, size/chunk+1)[:size]
}
