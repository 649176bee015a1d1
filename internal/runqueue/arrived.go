package runqueue

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

// ReadArrived returns once goroutines whose data has arrived from the network have run. The runtime
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
