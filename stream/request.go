package stream

import (
	"sync"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/race"
)

// request is the request that hedges send again. A message that can be copied is copied when it is sent: a generated method
// returns then, and its caller may fill the same message for the next stream, which works without hedging. Any other message
// is shared: hedges read the caller's own message, and release waits for them.
type request struct {
	mu         sync.Mutex // never held while a message is read
	message    any        // what hedges send: the copy, or the caller's if shared; nil before it is sent and after release
	shared     bool
	repeatable bool          // it is of a kind and size that can be sent again
	complete   bool          // the caller has called CloseSend
	released   bool          // nobody may read the caller's message any more
	readers    int           // how many read the caller's message now
	unread     chan struct{} // closed when readers falls to 0; nil unless release waits
}

func (r *request) sent(m any) {
	again := attempt.NewRequest(m)
	repeatable := again.Light() || again.Replayable()
	if repeatable {
		m, repeatable = again.Repeat()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.released {
		r.message, r.shared, r.repeatable = m, again.Shared(), repeatable
	}
}

func (r *request) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complete = true
}

// replayable reports whether the request can be sent again: it is complete, and of a kind and size that allow it.
func (r *request) replayable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.complete && r.repeatable && !r.released
}

func (r *request) isShared() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shared
}

// sendTo sends the request to a hedge.
func (r *request) sendTo(st grpc.ClientStream) error {
	m, shared, ok := r.read()
	if !ok {
		return race.ErrLost
	}
	if shared {
		defer r.done()
	}
	return st.SendMsg(m)
}

// read returns the message, which is the caller's if shared: the reader must then call done. It returns false after release.
func (r *request) read() (m any, shared, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released {
		return nil, false, false
	}
	if r.shared {
		r.readers++
	}
	return r.message, r.shared, true
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
	r.message, r.released = nil, true
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
