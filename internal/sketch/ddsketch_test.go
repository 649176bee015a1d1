package sketch_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/DataDog/sketches-go/ddsketch"

	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver"
)

var percentiles = []float64{0.01, 0.25, 0.5, 0.9, 0.99, 0.999}

// TestDDSketch_MergesToOneWindow records into two windows, and into one all of it: the merged
// sketches of the two have the quantiles of the one, there and back.
func TestDDSketch_MergesToOneWindow(t *testing.T) {
	now, r, straggler := time.Unix(1e9, 0), rand.New(rand.NewPCG(1, 2)), testserver.Straggler(
		testserver.LogNormal(5*time.Millisecond, 2*time.Millisecond), 0.05, 10)
	a, b, both := sketch.New(time.Minute), sketch.New(time.Minute), sketch.New(time.Minute)
	for range 5_000 {
		d := straggler.Draw(r)
		a.Record(now, d, true)
		b.Record(now, 2*d, true)
		both.Record(now, d, true)
		both.Record(now, 2*d, true)
	}
	if math.MaxInt == math.MaxInt32 {
		t.Skip("the mapping's Value is wrong on a 32-bit machine")
	}
	theirs := a.Snapshot(now).Counts().DDSketch()
	if err := theirs.MergeWith(b.Snapshot(now).Counts().DDSketch()); err != nil {
		t.Fatal(err)
	}
	want, back := both.Snapshot(now), sketch.FromDDSketch(theirs)
	if got, _ := back.Count(); float64(got) != theirs.GetCount() || got != want.Total() {
		t.Errorf("%d calls and %v, want %d", got, theirs.GetCount(), want.Total())
	}
	for _, q := range percentiles {
		w, _ := want.Quantile(q)
		if got, _ := back.Quantile(q); got != w {
			t.Errorf("quantile %v is %v, want %v", q, got, w)
		}
		// Their ranks are rounded otherwise, by one bucket at most.
		if got, err := theirs.GetValueAtQuantile(q); err != nil || got < float64(w)*0.979 || got > float64(w)*1.021 {
			t.Errorf("their quantile %v is %v, %v, want %v", q, time.Duration(got), err, w)
		}
	}
}

// TestFromDDSketch_AnyMapping records into a sketch of another accuracy: quantiles are within the
// sum of both.
func TestFromDDSketch_AnyMapping(t *testing.T) {
	theirs, err := ddsketch.NewDefaultDDSketch(0.02)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		_ = theirs.Add(float64(time.Duration(i+1) * time.Millisecond))
	}
	d := sketch.FromDDSketch(theirs)
	for _, q := range percentiles {
		want := time.Duration(q*1000+0.5) * time.Millisecond
		if got, ok := d.Quantile(q); !ok || got < want*97/100 || got > want*103/100 {
			t.Errorf("quantile %v is %v, %v, want %v", q, got, ok, want)
		}
	}
	for _, outside := range []float64{-1, 0, 1e30} {
		_ = theirs.Add(outside)
	}
	if n, _ := sketch.FromDDSketch(theirs).Count(); n != 1003 {
		t.Errorf("%d calls, want 1003", n)
	}
}
