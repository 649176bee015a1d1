package sketch_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver"
)

// In the end each step of the window holds exactly the calls recorded in it.
func TestRule18_NothingIsLostAcrossSteps(t *testing.T) {
	const (
		window    = 15 * time.Second
		step      = window / 15
		recorders = 8
		each      = 5_000
		all       = recorders * each
		tick      = 29 * step / all // a recorder can be late by all of the steps but no more
	)
	w := sketch.New(window)
	w.Snapshot(at(0)) // sets the origin
	var ticks atomic.Int64
	record := func() {
		n := ticks.Add(1) - 1
		w.Record(at(time.Duration(n)*tick), time.Duration(n%5000+1)*time.Millisecond/10, n%4 > 0)
	}

	var recording, reading sync.WaitGroup
	var stop atomic.Bool
	for range 2 {
		reading.Go(func() {
			for !stop.Load() {
				d := w.Snapshot(at(time.Duration(ticks.Load()) * tick))
				o, b := d.Count()
				if _, ok := d.Quantile(0.9); ok != (o > 0) || o+b > all {
					t.Errorf("Count = %d, %d and Quantile is %v", o, b, ok)
					return
				}
			}
		})
	}
	for range recorders {
		recording.Go(func() {
			for range each {
				record()
			}
		})
	}
	recording.Wait()
	stop.Store(true)
	reading.Wait()

	last := (all - 1) * tick
	var observed, bounded int64
	for n := range int64(all) {
		if time.Duration(n)*tick/step < last/step-15 {
			continue // left
		}
		if n%4 == 0 {
			bounded++
		} else {
			observed++
		}
	}
	if o, b := w.Snapshot(at(last)).Count(); o != observed || b != bounded {
		t.Errorf("Count = %d, %d, want %d, %d", o, b, observed, bounded)
	}
}

// The first records of a step, which have a slot and a page to allocate, come all at once.
func TestRule18_NothingIsLostAtTheFirstRecords(t *testing.T) {
	const recorders = 4
	for range 500 {
		w := sketch.New(time.Minute)
		start := make(chan struct{})
		var recording sync.WaitGroup
		for range recorders {
			recording.Go(func() {
				<-start
				w.Record(at(0), time.Millisecond, true)
				w.Record(at(0), time.Millisecond, false)
			})
		}
		close(start)
		recording.Wait()
		if o, b := w.Snapshot(at(0)).Count(); o != recorders || b != recorders {
			t.Fatalf("Count = %d, %d, want %d each", o, b, recorders)
		}
	}
}

// TestRule18_NothingIsLostWhileKeeping lets recorders go on to the next slot together, while
// snapshots are taken.
func TestRule18_NothingIsLostWhileKeeping(t *testing.T) {
	const recorders, each = 8, 500
	for _, tick := range []time.Duration{time.Millisecond, time.Second} {
		w := sketch.NewKeeping(30*time.Second, 2*recorders*each)
		w.Snapshot(at(0)) // sets the origin
		var ticks atomic.Int64
		var recording sync.WaitGroup
		for range recorders {
			recording.Go(func() {
				for i := range each {
					now := at(time.Duration(ticks.Add(1)) * tick)
					w.Record(now, time.Millisecond, i%4 > 0)
					if i%100 == 0 {
						w.Newest(now, 0, 16)
						w.Snapshot(now)
					}
				}
			})
		}
		recording.Wait()
		if got := count(w, at(time.Duration(ticks.Load())*tick)); got != recorders*each {
			t.Errorf("a call every %v: %d are kept, want %d", tick, got, recorders*each)
		}
	}
}

// durations returns latencies drawn from a lognormal distribution about 5 ms.
func durations(n int) []time.Duration {
	r := rand.New(rand.NewPCG(1, 2))
	ds := make([]time.Duration, n)
	for i := range ds {
		ds[i] = time.Duration(float64(5*time.Millisecond) * math.Exp(0.4*r.NormFloat64()))
	}
	return ds
}

// footprint returns the memory in bytes of a window of 30 s after something was recorded into it,
// as the mean of n.
func footprint(n int, record func(w *sketch.Window)) int {
	windows := make([]*sketch.Window, n)
	before := int(testserver.Heap())
	for i := range windows {
		windows[i] = sketch.New(30 * time.Second)
		record(windows[i])
	}
	after := int(testserver.Heap())
	runtime.KeepAlive(windows)
	return (after - before) / n
}

// spread records latencies that cover a range evenly on a logarithmic scale, in every step of the
// window.
func spread(record func(*sketch.Window, time.Time, time.Duration), from, to time.Duration) func(*sketch.Window) {
	return func(w *sketch.Window) {
		for second := time.Duration(0); second <= 30*time.Second; second += 2 * time.Second {
			for d := from; d < to; d += d/60 + 1 { // a bucket spans a fiftieth
				record(w, at(second), d)
			}
		}
	}
}

// Rule 16: a window grows on demand, up to a limit that no recording exceeds.
func TestRule16_MemoryIsBounded(t *testing.T) {
	longtest.Simulation(t)
	observe := func(w *sketch.Window, now time.Time, d time.Duration) { w.Record(now, d, true) }
	longer := func(w *sketch.Window, now time.Time, d time.Duration) { w.Record(now, d, false) }
	for _, tt := range []struct {
		name   string
		record func(*sketch.Window)
		max    int // bytes
	}{
		{"empty", func(*sketch.Window) {}, 192},
		{"one observation", func(w *sketch.Window) { observe(w, at(0), 5*time.Millisecond) }, 800},
		{"one decade", spread(observe, time.Millisecond, 10*time.Millisecond), 17 << 10},
		{"two decades and bounds within one", func(w *sketch.Window) {
			spread(observe, time.Millisecond, 100*time.Millisecond)(w)
			spread(longer, 10*time.Millisecond, 100*time.Millisecond)(w)
		}, 42 << 10},
		{"everything", func(w *sketch.Window) {
			for hour := range time.Duration(2) {
				for _, record := range []func(*sketch.Window, time.Time, time.Duration){observe, longer} {
					spread(func(w *sketch.Window, now time.Time, d time.Duration) {
						record(w, now.Add(hour*time.Hour), d)
					}, 1, time.Hour)(w)
				}
			}
		}, 140 << 10},
	} {
		got := footprint(1<<20/tt.max, tt.record) // a megabyte, beside which the test's own few KB are nothing
		t.Logf("%-34s %6d B", tt.name, got)
		if got > tt.max {
			t.Errorf("%s: %d B, want at most %d", tt.name, got, tt.max)
		}
	}
}

// Rule 18: no allocation but for the slot that a step begins. The race detector changes nothing in
// that, as all there is are atomics.
func TestRule18_RecordingDoesNotAllocate(t *testing.T) {
	ds := durations(1000)
	for name, w := range map[string]*sketch.Window{"plain": sketch.New(30 * time.Second),
		"keeping": sketch.NewKeeping(30*time.Second, 1000)} {
		i := 0
		record := func() {
			now := at(time.Duration(i) * 100 * time.Microsecond) // a step is 20,000 calls
			w.Record(now, ds[i%len(ds)], true)
			w.Record(now, ds[i%len(ds)], false)
			i++
		}
		for range len(ds) {
			record()
		}
		if n := testing.AllocsPerRun(10_000, record); n != 0 {
			t.Errorf("%s, within a step: %v allocations per record, want 0", name, n)
		}
		// A step of its own for each call is the worst: a slot and two pages. It does not add up with
		// more calls.
		i = 0
		if n := testing.AllocsPerRun(1000, func() { i += 20_000; record() }); n > 3 {
			t.Errorf("%s, a step later each: %v allocations per record, want at most 3", name, n)
		}
	}
}

// Rule 18: at most 30 ns and no allocation. A call comes every 100 µs, so that steps change as they
// do in use.
func BenchmarkObserve(b *testing.B) {
	w, now, ds := sketch.New(30*time.Second), time.Now(), durations(1024)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now = now.Add(100 * time.Microsecond)
		w.Record(now, ds[i%len(ds)], true)
	}
}
