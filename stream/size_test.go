package stream

import (
	"testing"
	"unsafe"
)

// TestCost_Size keeps a stream in the allocator's size class of 640 bytes, of which 8 are a header.
func TestCost_Size(t *testing.T) {
	if size := unsafe.Sizeof(clientStream{}); size > 632 {
		t.Errorf("a stream has %d bytes, want 632 at most", size)
	}
}
