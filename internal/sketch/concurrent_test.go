package sketch_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/sketch"
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
