package attempt

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Options are the call options of a call. By [grpc.Header], [grpc.Trailer], [grpc.Peer] and [grpc.OnFinish], gRPC writes to the
// caller's memory or calls the caller's code. So each attempt gets its own copy of them, and only the winner's results are
// passed to the caller.
type Options struct {
	caller  []grpc.CallOption
	initial []variable // what the caller's variables held when the call began, in the order of the options
	writes  bool       // an option writes to a variable, or is an OnFinish
}

// variable is what an option writes to: one of the three. Each option has one of its own: if a call fails before there is a stream,
// gRPC writes to none of them, and they may differ.
type variable struct {
	header, trailer metadata.MD
	peer            peer.Peer
}

// NewOptions takes the options of a call, which must not change while an attempt may still be made. Call it on the caller's goroutine,
// before the first attempt.
func NewOptions(opts []grpc.CallOption) Options {
	// Clipped, so that two attempts whose inner interceptors append do not write to one array.
	o := Options{caller: slices.Clip(opts)}
	for _, opt := range opts {
		switch opt := opt.(type) {
		case grpc.HeaderCallOption:
			o.take(variable{header: *opt.HeaderAddr})
		case grpc.TrailerCallOption:
			o.take(variable{trailer: *opt.TrailerAddr})
		case grpc.PeerCallOption:
			o.take(variable{peer: *opt.PeerAddr})
		case grpc.OnFinishCallOption:
			o.writes = true
		}
	}
	return o
}

func (o *Options) take(v variable) {
	if o.initial == nil {
		o.initial = make([]variable, 0, len(o.caller))
	}
	o.initial, o.writes = append(o.initial, v), true
}

// Results holds what one attempt's options have written.
type Results struct {
	caller    []grpc.CallOption
	variables []variable
	usual     [3]variable // memory for them: few calls have more than one option of each kind

	mu       sync.Mutex
	chosen   bool // to be delivered when finished
	filled   bool // the caller has the variables of a stream that has ended: see Ended
	finished bool
	err      error // what OnFinish was told
}

// Attempt returns the options for one attempt, followed by the extra ones, and the Results to which they write. Results is nil
// if no option writes. The caller must not use extra again.
func (o *Options) Attempt(extra ...grpc.CallOption) ([]grpc.CallOption, *Results) {
	if !o.writes {
		if len(o.caller) == 0 {
			return extra, nil
		}
		return append(o.caller, extra...), nil // with extra ones a copy, for caller is clipped
	}
	n := len(o.caller)
	both := append(make([]grpc.CallOption, 0, 2*n+1+len(extra)), o.caller...)
	r := &Results{caller: both[:n]} // a copy: a caller may change its slice after a call, and gRPC may end an attempt later
	r.variables = append(r.usual[:0], o.initial...)
	opts := both[n:]
	next := 0
	for _, opt := range o.caller {
		switch opt.(type) {
		case grpc.HeaderCallOption:
			opt = grpc.Header(&r.variables[next].header)
			next++
		case grpc.TrailerCallOption:
			opt = grpc.Trailer(&r.variables[next].trailer)
			next++
		case grpc.PeerCallOption:
			opt = grpc.Peer(&r.variables[next].peer)
			next++
		case grpc.OnFinishCallOption:
			continue
		}
		opts = append(opts, opt)
	}
	opts = append(opts, grpc.OnFinish(r.finish))
	return append(opts, extra...), r
}

// finish is the attempt's OnFinish. gRPC calls it when the attempt has ended, on the goroutine that ended it.
func (r *Results) finish(err error) { r.note(func() { r.finished, r.err = true, err })() }

// Deliver passes the results of the winner to the caller when gRPC has ended the attempt, as gRPC does: at once, or later for a
// stream, and where an interceptor has returned before. With answered the variables are passed at once in any case: an interceptor
// may have answered without gRPC. r may be nil.
func (r *Results) Deliver(answered bool) { r.Choose(answered)() }

// Choose is Deliver without the OnFinish callbacks. It returns a function that makes those that are due, and is called without a lock.
func (r *Results) Choose(answered bool) (finish func()) {
	if r == nil {
		return nothing
	}
	return r.note(func() {
		if r.chosen = true; answered && !r.finished {
			r.fill(r.variables)
		}
	})
}

// note makes a change. If the attempt was chosen and has finished, it fills the variables, and returns what makes the OnFinish
// callbacks, which come after that, as with gRPC.
func (r *Results) note(change func()) (finish func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if change(); !r.chosen || !r.finished {
		return nothing
	}
	r.fill(r.variables)
	err := r.err
	return func() {
		for _, opt := range r.caller {
			if opt, ok := opt.(grpc.OnFinishCallOption); ok {
				opt.OnFinish(err)
			}
		}
	}
}

func nothing() {}

// Ended passes the variables of the winner, a stream, to its caller, to whom one of its methods returns an error. If the context of the
// call or its connection has ended, the stream was ended by another goroutine of gRPC's, which calls OnFinish only after the caller
// may have read the variables. So they are taken from the stream. A stream that is not gRPC's may call no OnFinish. caller is the
// context of the call. r may be nil.
func (r *Results) Ended(st grpc.ClientStream, caller context.Context) {
	if r == nil || !r.awaited() {
		return
	}
	var v variable
	var to *peer.Peer
	before, _ := peer.FromContext(caller)
	ok := safely(func() { // it may be an interceptor's own stream
		to, _ = peer.FromContext(st.Context())
		v.header, _ = st.Header()
		v.trailer = st.Trailer()
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	variables := r.variables // gRPC has opened no stream, and writes nothing; or this is not gRPC's, and has written what it had to
	switch {
	case r.finished:
		return
	case ok && to != nil && to != before:
		v.peer = *to
		variables = slices.Repeat([]variable{v}, len(variables))
	case caller.Err() != nil: // it may still be writing
		return
	}
	r.fill(variables)
	r.filled = true
}

// awaited reports whether the caller is to get the results, and gRPC has not told of the attempt's end.
func (r *Results) awaited() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.chosen && !r.finished && !r.filled
}

// fill passes variables to the caller, unless it has them.
func (r *Results) fill(variables []variable) {
	if r.filled {
		return
	}
	next := 0
	for _, opt := range r.caller {
		switch opt := opt.(type) {
		case grpc.HeaderCallOption:
			*opt.HeaderAddr = variables[next].header
			next++
		case grpc.TrailerCallOption:
			*opt.TrailerAddr = variables[next].trailer
			next++
		case grpc.PeerCallOption:
			*opt.PeerAddr = variables[next].peer
			next++
		}
	}
}
