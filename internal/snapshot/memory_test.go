package snapshot_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/proto/snapshotpb"
)

// TestRead_TakesMemoryByItsSize reads snapshots that take as much memory for their size as can be. A method that comes many times
// is merged at once: it once took time and memory by all that was known of it for each time.
func TestRead_TakesMemoryByItsSize(t *testing.T) {
	size := longtest.Size(1<<20, 8<<20)
	snapshots := map[string][]byte{
		"targets":  bytes.Repeat([]byte{2<<3 | 2, 0}, size/2),
		"methods":  marshalled(t, make([]*snapshotpb.Method, size/2)...),
		"classes":  marshalled(t, &snapshotpb.Method{Name: "/m", Classes: make([]*snapshotpb.Class, size/2)}),
		"outcomes": marshalled(t, &snapshotpb.Method{Name: "/m", Knowledge: &snapshotpb.Knowledge{Outcomes: make([]*snapshotpb.Outcome, size/2)}}),
	}
	var same []*snapshotpb.Method
	for i := range size / 250 {
		s := sketch.Counts{{Bucket: int32(7 * i % 1000), Calls: 1}}.DDSketch().ToProto()
		outcome := &snapshotpb.Outcome{Age: 1000 << (i % 20), Rest: s}
		same = append(same, &snapshotpb.Method{Name: "/m", Knowledge: &snapshotpb.Knowledge{
			Latency: s, HedgeLatency: s, Outcomes: []*snapshotpb.Outcome{outcome},
		}})
	}
	snapshots["the same method"] = marshalled(t, same...)
	for name, b := range snapshots {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := read(bytes.NewReader(b))
		runtime.ReadMemStats(&after)
		allocated, allowed := after.TotalAlloc-before.TotalAlloc, uint64(100*len(b)+1<<20)
		t.Logf("%s: %d bytes, %d times as many are allocated; %v", name, len(b), allocated/uint64(len(b)), err)
		if allocated > allowed {
			t.Errorf("%s: %d bytes are allocated to read %d, want at most %d", name, allocated, len(b), allowed)
		}
	}
}
