package attempt_test

import (
	"runtime"
	"testing"

	"github.com/grpchedge/hedge/internal/attempt"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestKeep_Memory keeps large requests, and then as many small ones, which do not use the memory of the large ones.
func TestKeep_Memory(t *testing.T) {
	const requests, large, small = 500, 60_000, 100
	options := attempt.NewOptions(nil)
	keep := func(size int) []*attempt.Kept {
		all := make([]*attempt.Kept, requests)
		for n := range all {
			all[n] = options.Keep(&testpb.Request{Payload: make([]byte, size)})
		}
		return all
	}
	heap := func() (bytes uint64) {
		for range 3 { // a pool drops unused memory after two collections
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, k := range keep(large) {
		k.Free()
	}
	all := keep(small)
	with := heap()
	clear(all)
	if without := heap(); with > without+requests*large/4 {
		t.Errorf("%d requests of %d bytes take %d bytes", requests, small, with-without)
	}
}
