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
	repeatable bool           // it is of a kind and size that can be sent again
	released   bool           // nobody may read the caller's message any more
	readers    sync.WaitGroup // those that read the caller's message
}

func (r *request) sent(m any) {
	again := attempt.NewRequest(m)
	repeatable := again.Replayable()
	if repeatable {
		m, repeatable = again.Message()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.released {
		r.message, r.shared, r.repeatable = m, again.Shared(), repeatable
	}
}

// replayable reports whether the request can be sent again: it was sent, which ends the request of a server stream also without
// CloseSend, and is of a kind and size that allow it.
func (r *request) replayable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.repeatable && !r.released
}

func (r *request) sendTo(st grpc.ClientStream) error {
	r.mu.Lock()
	if r.released {
		r.mu.Unlock()
		return race.ErrLost
	}
	m := r.message
	if r.shared {
		r.readers.Add(1)
		defer r.readers.Done()
	}
	r.mu.Unlock()
	return st.SendMsg(m)
}

// release gives the message back to the caller. It waits until no hedge reads the message, which is soon after the hedges
// were cancelled. It may be called more than once.
func (r *request) release() {
	r.mu.Lock()
	r.message, r.released = nil, true
	r.mu.Unlock()
	r.readers.Wait()
}
