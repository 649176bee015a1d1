package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/DataDog/sketches-go/ddsketch/pb/sketchpb"

	"github.com/grpchedge/hedge/internal/sketch"
)

const (
	maxCalls   = 1e15 // in all
	maxGamma   = 2    // of a mapping: bins whose edges are a factor of two apart
	maxLatency = 24 * time.Hour
)

// totals are the calls of sketches in the buckets of package sketch.
type totals struct {
	of  [sketch.Buckets]float64
	sum float64
}

// addSketch adds a sketch of DataDog's, whatever its mapping.
func (t *totals) addSketch(from *sketchpb.DDSketch) error {
	if below := from.GetNegativeValues(); len(below.GetBinCounts())+len(below.GetContiguousBinCounts()) > 0 {
		return errors.New("the sketch has negative latencies")
	}
	bins, row := from.GetPositiveValues().GetBinCounts(), from.GetPositiveValues().GetContiguousBinCounts()
	m, err := newMapping(from.GetMapping())
	if err != nil && len(bins)+len(row) > 0 {
		return err
	}
	err = t.add(0, from.GetZeroCount())
	for i, calls := range row {
		err = cmp.Or(err, t.addBin(m, int64(from.GetPositiveValues().GetContiguousBinIndexOffset())+int64(i), calls))
	}
	for i, calls := range bins {
		err = cmp.Or(err, t.addBin(m, int64(i), calls))
	}
	return err
}

func (t *totals) addBin(m *mapping, bin int64, calls float64) error {
	if calls == 0 {
		return nil
	}
	d := m.value(bin)
	if !(d <= float64(maxLatency)) {
		return fmt.Errorf("bin %d is a latency of %.3g s, allowed: at most %v", bin, d/1e9, maxLatency)
	}
	if err := t.add(sketch.Bucket(time.Duration(d)), calls); err != nil {
		return fmt.Errorf("bin %d: %w", bin, err)
	}
	return nil
}

func (t *totals) add(bucket int, calls float64) error {
	t.sum += calls
	if !(calls >= 0 && t.sum <= maxCalls) {
		return fmt.Errorf("%v calls, allowed: 0 to %v in all", calls, maxCalls)
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

// mapping is an index mapping of sketches-go, whose own shifts an int by 52 bits: too far on a 32-bit machine.
type mapping struct {
	log    float64 // of gamma, to the base 2
	offset float64
	exp    func(log float64) float64 // the inverse of its logarithm to the base 2
}

func newMapping(m *sketchpb.IndexMapping) (*mapping, error) {
	gamma, offset, exp := m.GetGamma(), m.GetIndexOffset(), exps[m.GetInterpolation()]
	switch {
	case m == nil:
		return nil, errors.New("the sketch has no mapping")
	case !(gamma > 1 && gamma <= maxGamma):
		return nil, fmt.Errorf("the mapping's gamma is %v, allowed: above 1, at most %v", gamma, maxGamma)
	case math.IsNaN(offset) || math.IsInf(offset, 0):
		return nil, fmt.Errorf("the mapping's index offset is %v, allowed: finite", offset)
	case exp == nil:
		return nil, fmt.Errorf("the mapping's interpolation %v is not supported: NONE, LINEAR or CUBIC", m.GetInterpolation())
	}
	return &mapping{math.Log2(gamma), offset, exp}, nil
}

var exps = map[sketchpb.IndexMapping_Interpolation]func(log float64) float64{
	sketchpb.IndexMapping_NONE:   math.Exp2,
	sketchpb.IndexMapping_LINEAR: expLinear,
	sketchpb.IndexMapping_CUBIC:  sketch.ExpCubic,
}

func expLinear(log float64) float64 {
	exponent := math.Floor(log)
	return math.Ldexp(log-exponent+1, int(exponent))
}

// value returns the latency, in nanoseconds, that differs least, relatively, from all those in a bin; one that is too long for a
// [time.Duration] where they are, and about 1 where they are shorter.
func (m *mapping) value(bin int64) float64 {
	lower := min(max((float64(bin)-m.offset)*m.log, 0), 64)
	low, high := m.exp(lower), m.exp(lower+m.log)
	return 2 * low / (low + high) * high
}
