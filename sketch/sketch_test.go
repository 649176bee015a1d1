package sketch_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/sketch"
)

// What the window promises beyond its examples is tested where it is made, in internal/latency.
func TestWindow(t *testing.T) {
	w, start := sketch.New(30*time.Second), time.Now()
	if _, ok := w.Snapshot(start).Quantile(0.5); ok {
		t.Error("an empty window has a median")
	}
	for i := range 1000 {
		w.Observe(start, time.Duration(i+1)*time.Millisecond)
	}
	for range 100 {
		w.ObserveLonger(start, 2*time.Second)
	}
	for _, tc := range []struct {
		after            time.Duration
		observed, longer int64
		p50              time.Duration
	}{
		{0, 1000, 100, 550 * time.Millisecond},
		{30 * time.Second, 1000, 100, 550 * time.Millisecond},
		{32 * time.Second, 0, 0, 0},
	} {
		d := w.Snapshot(start.Add(tc.after))
		if observed, longer := d.Count(); observed != tc.observed || longer != tc.longer {
			t.Errorf("after %v: Count = %d, %d, want %d, %d", tc.after, observed, longer, tc.observed, tc.longer)
		}
		got, ok := d.Quantile(0.5)
		if ok != (tc.p50 > 0) || got < tc.p50*99/100 || got > tc.p50*101/100 {
			t.Errorf("after %v: the median is %v, %v, want %v", tc.after, got, ok, tc.p50)
		}
	}
}
