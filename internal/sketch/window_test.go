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

type (
	times  = []time.Duration
	counts = map[time.Duration]int64 // calls in the window at a time
)

// every returns the multiples of a time from 0 to another.
func every(step, last time.Duration) (all times) {
	for d := time.Duration(0); d <= last; d += step {
		all = append(all, d)
	}
	return all
}

func count(w *sketch.Window, now time.Time) int64 {
	observed, bounded := w.Snapshot(now).Count()
	return observed + bounded
}

// A call stays for a window, and is gone after 16/15 of it.
func TestObservationsLeave(t *testing.T) {
	const ms, s, day = time.Millisecond, time.Second, 24 * time.Hour
	for _, tt := range []struct {
		name     string
		window   time.Duration
		recorded times
		want     counts
	}{
		{name: "first of a step", window: 30 * s, recorded: times{0},
			want: counts{0: 1, 30 * s: 1, 32*s - 1: 1, 32 * s: 0}},
		{name: "last of a step", window: 30 * s, recorded: times{0, 2*s - 1},
			want: counts{30 * s: 2, 32*s - 1: 2, 32 * s: 0}},
		{name: "each step alone", window: 30 * s, recorded: every(2*s, 30*s), want: counts{
			30 * s: 16, 32 * s: 15, 34 * s: 14, 48 * s: 7, 58 * s: 2, 60 * s: 1, 62 * s: 0,
		}},
		{name: "the shortest", window: ms, recorded: times{0}, want: counts{ms: 1, ms + ms/15: 0}},
		{name: "negative", window: math.MinInt64, recorded: times{0}, want: counts{ms: 1, ms + ms/15: 0}},
		{name: "for ever", window: math.MaxInt64, recorded: times{0}, want: counts{100 * 365 * day: 1}},
	} {
		w := sketch.New(tt.window)
		for _, d := range tt.recorded {
			w.Record(at(d), time.Millisecond, true)
		}
		for now, want := range tt.want {
			if got := count(w, at(now)); got != want {
				t.Errorf("%s: %d at %v, want %d", tt.name, got, now, want)
			}
		}
	}
}

func TestTimesInAnyOrder(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name     string
		recorded times
		now      time.Duration
		want     int64
	}{
		{name: "back and forth within the window", recorded: times{20 * s, 0, 29 * s, 10 * s, 1}, now: 30 * s, want: 5},
		{name: "before the first", recorded: times{20 * s, -1, -9 * s}, now: 20 * s, want: 3},
		{name: "too late to count", recorded: times{36 * s, 1 * s}, now: 36 * s, want: 1},
		{name: "an hour late, which costs one step at most", recorded: times{time.Hour, time.Hour + 5*s, 17 * s},
			now: time.Hour + 5*s, want: 1},
		{name: "a clock set back", recorded: times{time.Hour, time.Hour + 5*s, 5 * s, 6 * s, 15 * s}, now: 20 * s, want: 3},
		{name: "from the far future", recorded: times{0, 250*365*24*time.Hour + 6*s, 5 * s}, now: 10 * s, want: 2},
	} {
		w := sketch.New(30 * s)
		for _, d := range tt.recorded {
			w.Record(at(d), time.Millisecond, true)
		}
		if got := count(w, at(tt.now)); got != tt.want {
			t.Errorf("%s: %d in the window, want %d", tt.name, got, tt.want)
		}
	}
}

// Rule 15: a snapshot is read again and again, by any number of callers, and never changes under
// them.
func TestRule15_SnapshotNeverChanges(t *testing.T) {
	w := sketch.New(30 * time.Second)
	for i := range 100 {
		w.Record(at(0), time.Duration(i)*time.Millisecond, true)
	}
	d := w.Snapshot(at(0))
	p50, _ := d.Quantile(0.5)
	for i := range 10_000 {
		w.Record(at(time.Duration(i)*time.Millisecond), time.Second, true)
		w.Record(at(time.Duration(i)*time.Millisecond), time.Second, false)
	}
	w.Snapshot(at(time.Hour))
	if got, _ := d.Quantile(0.5); got != p50 {
		t.Errorf("p50 changed from %v to %v", p50, got)
	}
	if o, b := d.Count(); o != 100 || b != 0 {
		t.Errorf("Count changed to %d, %d", o, b)
	}
	if n := testing.AllocsPerRun(100, func() { d.Quantile(0.99) }); n != 0 {
		t.Errorf("Quantile: %v allocations, want 0", n)
	}
}

// TestDraws checks that the share of draws below a probability is that probability.
func TestDraws(t *testing.T) {
	var e sketch.Draws
	for _, share := range []float64{0.5, 0.1, 1.0 / 64} {
		n := 0
		for range 1000 {
			if e.Next() < share {
				n++
			}
		}
		if want := 1000 * share; math.Abs(float64(n)-want) > 3 {
			t.Errorf("%d of 1000 numbers are below %v", n, share)
		}
	}
}

// keeping returns a window of 30 s that keeps 150 calls, ten of them in each of its slots at least.
func keeping() *sketch.Window { return sketch.NewKeeping(30*time.Second, 150) }

// Calls older than the window leave only as newer calls replace them.
func TestKeeping_AgeAloneRemovesNothing(t *testing.T) {
	for _, tt := range []struct {
		name  string
		every time.Duration
		calls int
		pause time.Duration // after the last
		least int64
		most  int64
	}{
		{name: "few calls", every: time.Second, calls: 100, pause: time.Hour, least: 100, most: 100},
		{name: "a call every minute", every: time.Minute, calls: 2_000, pause: time.Minute, least: 150, most: 170},
		{name: "a call a second", every: time.Second, calls: 2_000, pause: time.Hour, least: 150, most: 170},
		{name: "a hundred calls a second", every: 10 * time.Millisecond, calls: 10_000, least: 3000, most: 3200},
		{name: "a hundred calls a second, and then none", every: 10 * time.Millisecond, calls: 10_000, pause: time.Hour,
			least: 150, most: 400},
		{name: "longer ago than six hours", every: time.Second, calls: 1000, pause: 7 * time.Hour},
	} {
		w, now := keeping(), at(0)
		for range tt.calls {
			now = now.Add(tt.every)
			w.Record(now, time.Millisecond, true)
		}
		if got := count(w, now.Add(tt.pause)); got < tt.least || got > tt.most {
			t.Errorf("%s: %d are kept, want %d to %d", tt.name, got, tt.least, tt.most)
		}
	}
}

// TestAnswered has a call in two seconds for an hour, and a slot that holds twenty seconds of them. What
// was answered in the last 30 s counts, in two windows, and nothing does 33 s after the last call.
func TestAnswered(t *testing.T) {
	w, other, now := keeping(), sketch.New(30*time.Second), at(0)
	for i := range 1800 {
		now = now.Add(2 * time.Second)
		w.Record(now, time.Millisecond, true)
		w.Record(now, time.Minute, false) // a bound is no answer
		other.Record(now, time.Duration(1+i/1790)*time.Second, true)
	}
	got := sketch.Answered(now, w, nil, other)
	if n := got.Total(); n < 30 || n > 34 {
		t.Errorf("%d calls were answered, want the 30 of 30 s", n)
	}
	for q, want := range map[float64]time.Duration{0.4: time.Millisecond, 0.6: time.Second, 0.9: 2 * time.Second} {
		if d, _ := got.Quantile(q); d < want*98/100 || d > want*102/100 {
			t.Errorf("quantile %v is %v, want %v", q, d, want)
		}
	}
	if n := sketch.Answered(now.Add(33*time.Second), w, other).Total(); n != 0 {
		t.Errorf("%d calls were answered in the last half minute, want none", n)
	}
}

// The calls that are kept are the last ones, and the newest of them can be told from the others.
func TestKeeping_KeepsTheLast(t *testing.T) {
	for _, every := range []time.Duration{100 * time.Millisecond, time.Second, 17 * time.Second, 3 * time.Minute} {
		w, now := keeping(), at(0)
		for i := range 500 {
			now = now.Add(every)
			d := time.Millisecond
			if i >= 490 {
				d = time.Second
			}
			w.Record(now, d, true)
		}
		from, _ := w.Newest(now, 0, 16)
		before, newest := w.Between(now, 0, from), w.Between(now, from, sketch.Latest)
		if n := newest.Total(); n < 16 || n > 42 {
			t.Errorf("every %v: the newest are %d", every, n)
		}
		if slow, _ := before.Quantile(0.999); slow > 2*time.Millisecond {
			t.Errorf("every %v: the newest calls lack a slow one", every)
		}
		all := w.Snapshot(now)
		if slow, _ := all.Quantile(1 - 9.0/float64(all.Total())); slow < 900*time.Millisecond {
			t.Errorf("every %v: slow calls were forgotten", every)
		}
	}
}

// Calls that began together are counted together, though the last of them ends after the window.
func TestKeeping_RecordByStart(t *testing.T) {
	for _, longest := range []time.Duration{4 * time.Second, 40 * time.Second} {
		w, now := keeping(), at(0)
		w.Mark(now) // sets the origin
		for burst := range 5 {
			for i := range time.Duration(100) {
				took := (i + 1) * longest / 100
				now = at(time.Duration(burst)*time.Minute + took)
				w.RecordByStart(now, took, true)
			}
		}
		from, _ := w.Newest(now, 0, 16)
		d := w.Between(now, from, sketch.Latest)
		if first := quantile(t, d, 0.01); d.Total() != 100 || off(first, longest/100) > 0.01 {
			t.Errorf("calls of at most %v: the newest are %d, the first takes %v", longest, d.Total(), first)
		}
		if _, to := w.Newest(now, longest, 16); w.Between(now, from, to).Total() > 0 {
			t.Errorf("calls of at most %v: the newest are complete when the last one ends", longest)
		}
	}
}

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
