package sketch_test

import (
	"math"
	"testing"
	"time"

	"github.com/DataDog/sketches-go/ddsketch/mapping"

	"github.com/grpchedge/hedge/sketch"
)

// TestUpperEdge_IsWhereBucketsEnd holds on 32-bit machines too: GOARCH=386 go test ./sketch.
func TestUpperEdge_IsWhereBucketsEnd(t *testing.T) {
	last := sketch.Bucket(time.Hour)
	for b := range last {
		edge := sketch.UpperEdge(b)
		if below, above := sketch.Bucket(edge-1), sketch.Bucket(edge); below != b || above != b+1 {
			t.Errorf("bucket %d ends at %v: before it there is bucket %d, and then %d", b, edge, below, above)
		}
	}
	if edge := sketch.UpperEdge(last); edge != 10*time.Minute {
		t.Errorf("the last bucket ends at %v", edge)
	}
}

// TestUpperEdge_IsTheMappings compares with the mapping's own inverse, which needs 64-bit integers.
func TestUpperEdge_IsTheMappings(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("the mapping's LowerBound is wrong on a 32-bit machine")
	}
	m, err := mapping.NewCubicallyInterpolatedMapping(0.01)
	if err != nil {
		t.Fatal(err)
	}
	first := m.Index(float64(time.Microsecond))
	for b := range sketch.Bucket(time.Hour) {
		want := time.Duration(math.Ceil(m.LowerBound(first + b + 1)))
		if got := sketch.UpperEdge(b); got != want {
			t.Errorf("bucket %d ends at %d ns, want %d", b, got, want)
		}
	}
}
