package stream

import (
	"testing"
	"unsafe"
)

// TestCost_Size keeps a stream in the allocator's size class of 1,024 bytes (8 are a header): the
// next one has 1,152 bytes.
func TestCost_Size(t *testing.T) {
	if size := unsafe.Sizeof(clientStream{}); size > 1016 {
		t.Errorf("a stream has %d bytes, want 1,016 at most", size)
	}
}
