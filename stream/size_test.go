package stream

import (
	"testing"
	"unsafe"
)

// TestCost_Size keeps a stream in the allocator's size class of 640 bytes (8 are a header): the
// next one has 704 bytes.
func TestCost_Size(t *testing.T) {
	if size := unsafe.Sizeof(clientStream{}); size > 632 {
		t.Errorf("a stream has %d bytes, want 632 at most", size)
	}
}
