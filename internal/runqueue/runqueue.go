// Package runqueue measures how long goroutines of this process wait for a processor, and lets those
// with an answer run first.
package runqueue

import (
	"math"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// fresh is the least time between two readings of the runtime's histogram.
	fresh = 5 * time.Millisecond
	// window is the least time over which Wait averages.
	window = 50 * time.Millisecond
)

// Wait returns the mean time that goroutines of this process waited for a processor, over the last
// 50 to 100 ms, or since the previous call if that was earlier; 0 at the first call. The runtime
// records one in eight waits of a goroutine. Note: a request that waits in a socket, or a timer
// that fires late, is not a goroutine that waits.
//
// Wait reads the runtime's histogram at most every 5 ms, and does not allocate after the first call.
// It may be called concurrently.
func Wait() time.Duration {
	if f := replacement.Load(); f != nil {
		return (*f)()
	}
	return process.wait()
}

// Busy reports whether this process is late by more than limit: a timer fired late, or goroutines wait
// for a processor. The least limits are precision and minWait. In virtual time, where timers are on
// time to the nanosecond, it returns false.
func Busy(late, limit time.Duration) bool {
	if replacement.Load() != nil {
		late = 0
	} else if late <= 0 {
		return false
	}
	return delays(late, Wait(), limit)
}

func delays(late, wait, limit time.Duration) bool {
	return late > max(limit, precision) || wait > max(limit, minWait)
}

const (
	// precision of timers: an idle process waits for the network in whole milliseconds.
	precision = 2 * time.Millisecond
	// minWait is more than the mean wait in a process that has processors to spare.
	minWait = 200 * time.Microsecond
)

var (
	process     = meter{origin: time.Now(), read: runtimeReading()}
	replacement atomic.Pointer[func() time.Duration]
)

// Replace makes Wait call f until restore is called. Busy then depends on f alone, and ReadArrived
// does nothing. It is for tests.
func Replace(f func() time.Duration) (restore func()) {
	before := replacement.Swap(&f)
	return func() { replacement.Store(before) }
}

// meter averages over the readings of a histogram.
type meter struct {
	origin time.Time // from which readings count
	read   func() (n uint64, waited float64)

	until atomic.Int64 // the mean is fresh until then, since origin
	mean  atomic.Int64

	mu   sync.Mutex
	from reading // where the window begins
	next reading // where it begins next, once next is as old as the window
}

// reading is the state of a histogram: n goroutines have waited, for waited seconds altogether.
type reading struct {
	at     time.Duration // since origin
	n      uint64
	waited float64
}

func (m *meter) wait() time.Duration {
	now := time.Since(m.origin)
	if int64(now) >= m.until.Load() && m.mu.TryLock() {
		m.update(now)
		m.mu.Unlock()
	}
	return time.Duration(m.mean.Load())
}

// update reads the histogram and moves the window. mu must be held.
func (m *meter) update(now time.Duration) {
	n, waited := m.read()
	r := reading{now, n, waited}
	if m.until.Load() == 0 {
		m.from, m.next = r, r
	}
	if r.at-m.next.at >= window {
		m.from, m.next = m.next, r
	}
	mean := 0.0
	if n := r.n - m.from.n; n > 0 {
		mean = (r.waited - m.from.waited) / float64(n)
	}
	m.mean.Store(int64(mean * float64(time.Second)))
	m.until.Store(int64(now + fresh))
}

// runtimeReading returns a function that reads the runtime's histogram, one call at a time.
func runtimeReading() func() (uint64, float64) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	return func() (uint64, float64) {
		metrics.Read(sample)
		if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
			return 0, 0 // a runtime without that metric
		}
		return sum(sample[0].Value.Float64Histogram())
	}
}

// sum returns the number of values in a histogram, and their sum. A value counts as the middle of
// its bucket.
func sum(h *metrics.Float64Histogram) (n uint64, total float64) {
	for i, count := range h.Counts {
		if count == 0 {
			continue
		}
		low, high := max(h.Buckets[i], 0), h.Buckets[i+1]
		if math.IsInf(high, 1) {
			high = low
		}
		n += count
		total += float64(count) * (low + high) / 2
	}
	return n, total
}

// ReadArrived returns once the goroutines with data from the network have run. The runtime
// polls the network when no goroutine waits for a processor, or every 10 ms, so an answer may lie in
// a socket of a busy process. ReadArrived sends a byte through a pipe to itself: the byte is polled
// after the answer. It takes microseconds in a process with processors to spare.
//
// ReadArrived may be called concurrently. It is a no-op in a process that cannot open a pipe, and
// while Replace is in force.
func ReadArrived() {
	if replacement.Load() == nil {
		loop.round()
	}
}

var loop pipe

// pipe is a pipe of the process to itself.
type pipe struct {
	began atomic.Int64 // rounds

	mu     sync.Mutex // held during a round
	opened bool
	r, w   *os.File // nil if the process cannot open a pipe
}

// round sends a byte, unless another call's round began after this one and has ended.
func (p *pipe) round() {
	before := p.began.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began.Load() > before {
		return
	}
	p.began.Add(1)
	if !p.opened {
		p.opened = true
		p.r, p.w, _ = os.Pipe()
	}
	if p.r == nil {
		return
	}
	go func() { _, _ = p.w.Write([]byte{0}) }() // after the read has begun, unless another processor is idle
	_, _ = p.r.Read(make([]byte, 1))
	runtime.Gosched() // to goroutines that were polled together with this one
}
