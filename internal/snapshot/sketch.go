package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/DataDog/sketches-go/ddsketch/pb/sketchpb"

	"github.com/grpchedge/hedge/internal/sketch"
)

const maxCalls = 1e15 // in all

// totals are the calls of sketches in the buckets of package sketch.
type totals struct {
	of  [sketch.Buckets]float64
	sum float64
}

// ours is the mapping of written sketches.
var ours = sketch.Counts{}.DDSketch().ToProto().GetMapping()

// addSketch adds a DDSketch. Its mapping must be ours.
func (t *totals) addSketch(from *sketchpb.DDSketch) error {
	if below := from.GetNegativeValues(); len(below.GetBinCounts())+len(below.GetContiguousBinCounts()) > 0 {
		return errors.New("latencies must not be negative")
	}
	bins, row := from.GetPositiveValues().GetBinCounts(), from.GetPositiveValues().GetContiguousBinCounts()
	m := from.GetMapping()
	same := m.GetInterpolation() == ours.Interpolation && m.GetIndexOffset() == ours.IndexOffset &&
		math.Abs(m.GetGamma()-ours.Gamma) < 1e-9
	if len(bins)+len(row) > 0 && !same {
		return fmt.Errorf("mapping {%v}: must be {%v}", m, ours)
	}
	err := t.add(0, from.GetZeroCount())
	for i, calls := range row {
		err = cmp.Or(err, t.addBin(int64(from.GetPositiveValues().GetContiguousBinIndexOffset())+int64(i), calls))
	}
	for i, calls := range bins {
		err = cmp.Or(err, t.addBin(int64(i), calls))
	}
	return err
}

func (t *totals) addBin(bin int64, calls float64) error {
	first := int64(sketch.FirstBin)
	switch {
	case calls == 0:
		return nil
	case bin < first || bin >= first+sketch.Buckets:
		return fmt.Errorf("bin %d: must be %d to %d, for 1 µs to 10 min", bin, first, first+sketch.Buckets-1)
	}
	if err := t.add(int(bin-first), calls); err != nil {
		return fmt.Errorf("bin %d: %w", bin, err)
	}
	return nil
}

func (t *totals) add(bucket int, calls float64) error {
	t.sum += calls
	if !(calls >= 0 && t.sum <= maxCalls) {
		return fmt.Errorf("%v calls: must be 0 to %v in total", calls, maxCalls)
	}
	t.of[bucket] += calls
	return nil
}

func (t *totals) counts() sketch.Counts {
	var c sketch.Counts
	for bucket, calls := range t.of {
		if float32(calls) > 0 {
			c = append(c, sketch.Count{Bucket: int32(bucket), Calls: float32(calls)})
		}
	}
	return c
}
