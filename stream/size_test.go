package stream

import (
	"testing"
	"unsafe"
)

// TestCost_Size keeps a stream in the allocator's size class of 896 bytes (8 are a header): the
// next one has 1,024 bytes.
func TestCost_Size(t *testing.T) {
	if size := unsafe.Sizeof(clientStream{}); size > 888 {
		t.Errorf("a stream has %d bytes, want 888 at most", size)
	}
}
