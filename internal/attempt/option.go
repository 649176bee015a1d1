package attempt

import (
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Options are the call options of a call, to be given to several attempts of it. Options by which gRPC writes
// to the caller's memory or calls the caller's code, [grpc.Header], [grpc.Trailer], [grpc.Peer] and
// [grpc.OnFinish], are given to each attempt with a place of its own; the winner's are then delivered.
type Options struct {
	caller  []grpc.CallOption
	initial *Results // what the caller's variables held when the call began; nil if no option writes
}

// NewOptions takes the caller's options, on the caller's goroutine and before the first attempt.
func NewOptions(opts []grpc.CallOption) Options {
	// Clipped, so that two attempts whose inner interceptors append do not write to one array.
	o := Options{caller: slices.Clip(opts)}
	for _, opt := range opts {
		switch opt := opt.(type) {
		case grpc.HeaderCallOption:
			o.capture().header = *opt.HeaderAddr
		case grpc.TrailerCallOption:
			o.capture().trailer = *opt.TrailerAddr
		case grpc.PeerCallOption:
			o.capture().peer = *opt.PeerAddr
		case grpc.OnFinishCallOption:
			o.capture()
		}
	}
	return o
}

func (o *Options) capture() *Results {
	if o.initial == nil {
		o.initial = new(Results)
	}
	return o.initial
}

// Results is where one attempt's options write.
type Results struct {
	options         *Options
	header, trailer metadata.MD
	peer            peer.Peer

	mu       sync.Mutex
	chosen   bool // to be delivered when finished
	finished bool
	err      error // what OnFinish was told
}

// Attempt returns the options for one attempt and where they write; that is nil when none writes anything. The
// extra ones are the attempt's own. Without them, and if nothing writes, the options are the caller's as they are.
func (o *Options) Attempt(extra ...grpc.CallOption) ([]grpc.CallOption, *Results) {
	if o.initial == nil {
		if len(extra) == 0 {
			return o.caller, nil
		}
		return append(o.caller, extra...), nil // a copy, for caller is clipped
	}
	r := &Results{options: o, header: o.initial.header, trailer: o.initial.trailer, peer: o.initial.peer}
	opts := make([]grpc.CallOption, 0, len(o.caller)+1+len(extra))
	for _, opt := range o.caller {
		switch opt.(type) {
		case grpc.HeaderCallOption:
			opt = grpc.Header(&r.header)
		case grpc.TrailerCallOption:
			opt = grpc.Trailer(&r.trailer)
		case grpc.PeerCallOption:
			opt = grpc.Peer(&r.peer)
		case grpc.OnFinishCallOption:
			continue
		}
		opts = append(opts, opt)
	}
	opts = append(opts, grpc.OnFinish(r.finish))
	return append(opts, extra...), r
}

// finish is told by gRPC that the attempt is over, on the goroutine that ended it.
func (r *Results) finish(err error) {
	r.mu.Lock()
	r.finished, r.err = true, err
	deliver := r.chosen
	r.mu.Unlock()
	if deliver {
		r.deliver()
	}
}

// Deliver gives the caller what the options of the winning attempt, which is over, wrote. r may be nil.
func (r *Results) Deliver() {
	if r != nil {
		r.deliver()
	}
}

// DeliverAtEnd does so when the winning attempt ends, at once if it has: gRPC fills in a stream's options at its
// end. r may be nil.
func (r *Results) DeliverAtEnd() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.chosen = true
	deliver := r.finished
	r.mu.Unlock()
	if deliver {
		r.deliver()
	}
}

// deliver fills in the variables before it runs the OnFinish callbacks, as gRPC does.
func (r *Results) deliver() {
	for _, opt := range r.options.caller {
		switch opt := opt.(type) {
		case grpc.HeaderCallOption:
			*opt.HeaderAddr = r.header
		case grpc.TrailerCallOption:
			*opt.TrailerAddr = r.trailer
		case grpc.PeerCallOption:
			*opt.PeerAddr = r.peer
		}
	}
	if !r.finished {
		return // whatever answered instead of gRPC does not know of OnFinish
	}
	for _, opt := range r.options.caller {
		if opt, ok := opt.(grpc.OnFinishCallOption); ok {
			opt.OnFinish(r.err)
		}
	}
}
