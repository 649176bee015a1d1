package sketch_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/sketch"
)

// What a meter counts is what the heap grows by.
func TestMeter_CountsWhatWindowsTake(t *testing.T) {
	longtest.Simulation(t)
	observe, longer := (*sketch.Window).Observe, (*sketch.Window).ObserveLonger
	for _, tt := range []struct {
		name    string
		windows int // a megabyte of them, beside which the test's own few KB are nothing
		record  func(*sketch.Window)
	}{
		{"one observation", 2_000, func(w *sketch.Window) { observe(w, at(0), 5*time.Millisecond) }},
		{"one decade", 100, spread(observe, time.Millisecond, 10*time.Millisecond)},
		{"bounds in two", 100, spread(longer, time.Millisecond, 100*time.Millisecond)},
		{"slots that make way", 100, func(w *sketch.Window) {
			for minute := range time.Duration(20) {
				for second := range time.Duration(60) {
					observe(w, at(minute*time.Minute+second*time.Second), time.Millisecond<<minute)
				}
			}
		}},
	} {
		var m sketch.Meter
		windows := make([]*sketch.Window, tt.windows)
		before := heap()
		for i := range windows {
			windows[i] = sketch.NewIn(&m, 30*time.Second)
			tt.record(windows[i])
		}
		took, counted := heap()-before, int(m.Bytes())
		t.Logf("%-20s %d B a window, %d counted", tt.name, took/len(windows), counted/len(windows))
		if float64(took) > 1.02*float64(counted) || float64(took) < 0.9*float64(counted) {
			t.Errorf("%s: the heap grew by %d B, and %d are counted", tt.name, took, counted)
		}
		for _, w := range windows {
			w.Release()
		}
		if n := m.Bytes(); n != 0 {
			t.Errorf("%s: %d B are left of what was released", tt.name, n)
		}
		runtime.KeepAlive(windows)
	}
}

// However recorders and releases meet, nothing is left of what was released, and all of what was not.
func TestMeter_Concurrent(t *testing.T) {
	var all, part sketch.Meter
	part.PartOf(&all)
	stays := sketch.NewIn(&all, 30*time.Second)
	leaves := sketch.NewIn(&all, 30*time.Second)
	inPart := sketch.NewIn(&part, 30*time.Second)
	var group sync.WaitGroup
	for g := range uint64(4) {
		group.Go(func() {
			random := rand.New(rand.NewPCG(g, 1))
			for i := range 20_000 {
				now, d := at(time.Duration(i)*10*time.Millisecond), time.Duration(1+random.Int64N(int64(time.Second)))
				for _, w := range []*sketch.Window{stays, leaves, inPart} {
					w.Observe(now, d)
				}
				if g == 0 && i == 10_000 {
					leaves.Release()
					part.Release()
				}
			}
		})
	}
	group.Wait()
	inPart.Release() // late, as one of a part that has left
	if part.Bytes() != 0 {
		t.Errorf("%d B are left of a part that was released", part.Bytes())
	}
	if all.Bytes() <= 0 {
		t.Error("nothing is counted of the window that stays")
	}
	stays.Release()
	if n := all.Bytes(); n != 0 {
		t.Errorf("%d B are left when all are released", n)
	}
}
