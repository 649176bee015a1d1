package stream

import (
	"testing"
	"unsafe"
)

// TestCost_Size keeps a stream in a size class of the allocator: the next one has 1,024 bytes.
func TestCost_Size(t *testing.T) {
	if size := unsafe.Sizeof(clientStream{}); size > 896 {
		t.Errorf("%d bytes", size)
	}
}
