package snapshot_test

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/DataDog/sketches-go/ddsketch/pb/sketchpb"

	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/snapshot"
	"github.com/grpchedge/hedge/proto/snapshotpb"
)

// FuzzSnapshot reads anything: it is an error, or knowledge within its bounds that is written and
// read again as it is.
func FuzzSnapshot(f *testing.F) {
	whole := written(f, example())
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(append(bytes.Clone(whole), whole...))
	f.Add(written(f, nil))
	var outcomes []*snapshotpb.Outcome // more than are kept
	for i := range 73 {
		outcomes = append(outcomes, &snapshotpb.Outcome{Age: 1000 << (i / 2) * int64(2+i%2) / 2,
			Rest: &sketchpb.DDSketch{ZeroCount: 1}})
	}
	f.Add(ofOutcomes(f, outcomes...))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := snapshot.Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		var out bytes.Buffer
		w := snapshot.Writer{To: &out}
		for _, name := range slices.Sorted(maps.Keys(s)) {
			for _, m := range s[name].Methods {
				checkCounts(t, m.Primaries)
				checkCounts(t, m.Hedges)
				if len(m.Outcomes) > 48 {
					t.Fatalf("%d outcomes", len(m.Outcomes))
				}
				for _, o := range m.Outcomes {
					checkCounts(t, o.Rest)
				}
			}
			if err := w.Target(name, s[name]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := snapshot.Read(&out)
		if err != nil {
			t.Fatalf("what was written is refused: %v", err)
		}
		for name, target := range s {
			for method, m := range target.Methods {
				if !slices.Equal(again[name].Methods[method].Primaries, m.Primaries) {
					t.Fatalf("%q, %q: %v, and %v when written and read again", name, method, m.Primaries,
						again[name].Methods[method].Primaries)
				}
			}
		}
	})
}

func checkCounts(t *testing.T, c sketch.Counts) {
	t.Helper()
	last := int32(-1)
	for _, count := range c {
		if count.Bucket <= last || count.Bucket >= sketch.Buckets || !(count.Calls > 0) ||
			math.IsInf(float64(count.Calls), 0) {
			t.Fatalf("%v", c)
		}
		last = count.Bucket
	}
}
