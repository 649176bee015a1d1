package sketch_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
)

// Whatever durations come at whatever times, the window holds no more than was recorded, answers
// within its range, and works on.
func FuzzObserve(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, records []byte) {
		const size = 16
		w := sketch.New(30 * time.Second)
		var n int64
		now := at(0)
		for ; len(records) >= size; records = records[size:] {
			now = at(time.Duration(binary.LittleEndian.Uint64(records)))
			d := time.Duration(binary.LittleEndian.Uint64(records[8:]))
			if n++; d&1 == 0 {
				w.Record(now, d, true)
			} else {
				w.Record(now, d, false)
			}
		}
		check(t, w.Snapshot(now), n)
		// After two windows with an orderly clock, no earlier recording can keep an observation
		// out.
		for second := time.Duration(0); second < 70*time.Second; second += 5 * time.Second {
			now = at(second)
			w.Record(now, time.Second, true)
		}
		d := w.Snapshot(now)
		check(t, d, n+14)
		if o, _ := d.Count(); o < 7 {
			t.Errorf("of 7 observations in the window it has %d", o)
		}
	})
}

func check(t *testing.T, d *sketch.Distribution, recorded int64) {
	t.Helper()
	o, b := d.Count()
	if o < 0 || b < 0 || o+b > recorded {
		t.Fatalf("Count = %d, %d of %d recorded", o, b, recorded)
	}
	last := time.Microsecond
	for _, q := range []float64{0.001, 0.1, 0.5, 0.9, 0.999} {
		v, ok := d.Quantile(q)
		if ok != (o > 0) || ok && (v < last || v > 10*time.Minute) {
			t.Fatalf("Quantile(%v) = %v, %v with %d observed, after %v", q, v, ok, o, last)
		}
		last = max(last, v)
	}
}
