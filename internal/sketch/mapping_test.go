package sketch_test

import (
	"math"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
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
	for d, want := range map[time.Duration]int{math.MinInt64: 0, -1: 0, 0: 0, math.MaxInt64: last} {
		if got := sketch.Bucket(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
}
