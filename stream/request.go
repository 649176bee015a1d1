package stream

import (
	"sync"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/race"
)

// request is the request that hedges send again. A message that can be copied is copied once for all hedges, while the caller
// waits. Any other message is shared: hedges read the caller's own message, and release waits for them.
type request struct {
	mu       sync.Mutex // never held while a message is read
	message  any        // the caller's; nil before it is sent and after release
	complete bool       // the caller has called CloseSend
	copied   any        // what hedges send; nil before the first hedge
	repeat   attempt.Request
	known    bool          // repeat is set
	shared   bool          // hedges send the caller's own message
	readers  int           // how many read the caller's message now
	released bool          // nobody may read the caller's message any more
	unread   chan struct{} // closed when readers falls to 0; nil unless release waits
}

func (r *request) sent(m any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.released {
		r.message = m
	}
}

func (r *request) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complete = true
}

// replayable reports whether the request can be sent again: it is complete, and of a kind and size that allow it. Calls of
// it and of prepare never overlap.
func (r *request) replayable() bool {
	m, ok := r.read()
	if !ok {
		return false
	}
	defer r.done()
	if m == nil || !r.ended() {
		return false
	}
	if !r.known {
		r.repeat, r.known = attempt.NewRequest(m), true
	}
	return r.repeat.Replayable()
}

// ended reports whether the caller has called CloseSend.
func (r *request) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.complete
}

// prepare makes the message that hedges send. replayable must have returned true. prepare returns false if the message cannot
// be copied.
func (r *request) prepare() bool {
	if _, ok := r.read(); !ok {
		return true // the call is decided: sendTo returns ErrLost
	}
	defer r.done()
	m, ok := r.repeat.Repeat()
	r.mu.Lock()
	r.copied, r.shared = m, r.repeat.Shared()
	r.mu.Unlock()
	return ok
}

// sendTo sends the request to a hedge.
func (r *request) sendTo(st grpc.ClientStream) error {
	r.mu.Lock()
	m, shared := r.copied, r.shared
	r.mu.Unlock()
	if shared || m == nil {
		var ok bool
		if m, ok = r.read(); !ok {
			return race.ErrLost
		}
		defer r.done()
	}
	return st.SendMsg(m)
}

// read returns the caller's message to a reader, which must then call done. It returns false after release.
func (r *request) read() (any, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released {
		return nil, false
	}
	r.readers++
	return r.message, true
}

func (r *request) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readers--; r.readers == 0 && r.unread != nil {
		close(r.unread)
		r.unread = nil
	}
}

// release gives the message back to the caller. It waits until no hedge reads the message, which is soon after the hedges
// were cancelled. It may be called more than once.
func (r *request) release() {
	r.mu.Lock()
	r.message, r.copied, r.released = nil, nil, true
	if r.readers == 0 {
		r.mu.Unlock()
		return
	}
	if r.unread == nil {
		r.unread = make(chan struct{})
	}
	unread := r.unread
	r.mu.Unlock()
	<-unread
}
