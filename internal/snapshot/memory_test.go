package snapshot_test

import (
	"bytes"
	"io"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/snapshot"
	"github.com/grpchedge/hedge/proto/snapshotpb"
)

// TestRead_TakesMemoryByItsSize reads snapshots that take as much memory for their size as can be.
// A method that comes many times is merged at once, and so are snapshots and outcomes: that once
// took time and memory by all that was known before.
func TestRead_TakesMemoryByItsSize(t *testing.T) {
	size := longtest.Size(1<<20, 8<<20)
	snapshots := map[string][][]byte{
		"targets":        {bytes.Repeat([]byte{2<<3 | 2, 0}, size/2)},
		"methods":        {marshalled(t, make([]*snapshotpb.Method, size/2)...)},
		"classes":        {marshalled(t, &snapshotpb.Method{Name: "/m", Classes: make([]*snapshotpb.Class, size/2)})},
		"outcomes":       {ofOutcomes(t, make([]*snapshotpb.Outcome, size/2)...)},
		"many snapshots": slices.Repeat([][]byte{written(t, example())}, size/1000),
	}
	var same []*snapshotpb.Method
	var outcomes []*snapshotpb.Outcome
	for i := range size / 250 {
		s := sketch.Counts{{Bucket: int32(7 * i % 1000), Calls: 1}}.DDSketch().ToProto()
		outcome := &snapshotpb.Outcome{Age: 1000 << (i % 20), Hedges: uint32(i % 4), Rest: s}
		same = append(same, &snapshotpb.Method{Name: "/m", Knowledge: &snapshotpb.Knowledge{
			Latency: s, HedgeLatency: s, Outcomes: []*snapshotpb.Outcome{outcome},
		}})
		outcomes = append(outcomes, &snapshotpb.Outcome{Age: 1000, Rest: s})
	}
	snapshots["the same method"] = [][]byte{marshalled(t, same...)}
	snapshots["outcomes of one age"] = [][]byte{ofOutcomes(t, outcomes...)}
	for name, all := range snapshots {
		allocated, _, err := readAll(all)
		length := len(bytes.Join(all, nil))
		t.Logf("%s: %d bytes, %d times as many are allocated; %v", name, length, allocated/length, err)
		if allowed := 100*length + 1<<20; allocated > allowed {
			t.Errorf("%s: %d bytes are allocated to read %d, want at most %d", name, allocated, length, allowed)
		}
	}
}

// TestRead_OutcomesInTurn has more kinds of outcomes than are kept, in turn: none is made and left
// out again and again.
func TestRead_OutcomesInTurn(t *testing.T) {
	var all, few []*snapshotpb.Outcome
	var wide sketch.Counts
	for bucket := range sketch.Buckets {
		wide = append(wide, sketch.Count{Bucket: int32(bucket), Calls: 1000})
	}
	for i := range 60 {
		all = append(all, &snapshotpb.Outcome{Age: int64(1000 * math.Exp2(float64(i)/2)), Rest: wide.DDSketch().ToProto()})
	}
	rest := sketch.Counts{{Bucket: 300, Calls: 1}}.DDSketch().ToProto()
	for i := range 20_000 {
		few = append(few, &snapshotpb.Outcome{Age: 1 << 40, Rest: rest})
		all = append(all, &snapshotpb.Outcome{Age: 1 << 40, Hedges: uint32(i % 3), Rest: rest})
	}
	_, took, err := readAll([][]byte{ofOutcomes(t, few...)})
	_, inTurn, errInTurn := readAll([][]byte{ofOutcomes(t, all...)})
	if err != nil || errInTurn != nil || inTurn > 8*took+time.Second {
		t.Errorf("%v, %v; outcomes in turn take %v, those of one kind %v", err, errInTurn, inTurn, took)
	}
}

func ofOutcomes(t testing.TB, all ...*snapshotpb.Outcome) []byte {
	t.Helper()
	return marshalled(t, &snapshotpb.Method{Name: "/m", Knowledge: &snapshotpb.Knowledge{Outcomes: all}})
}

// readAll reads and merges snapshots, and returns how many bytes that allocates and how long it
// takes.
func readAll(all [][]byte) (allocated int, took time.Duration, err error) {
	var readers []io.Reader
	for _, b := range all {
		readers = append(readers, bytes.NewReader(b))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	_, err = snapshot.Read(readers...)
	took = time.Since(began)
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc), took, err
}
