package attempt

import (
	"context"
	"reflect"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Options are the call options of a call. With [grpc.Header], [grpc.Trailer], [grpc.Peer] and
// [grpc.OnFinish], gRPC writes to the caller's memory or calls the caller's code. Each attempt
// therefore gets its own copy of these, and only the winner's results reach the caller.
type Options struct {
	Codec *Codec // that the options choose; nil for gRPC's own

	// Unknown means that attempts cannot share an option: see isKnown.
	Unknown bool
	// Writes means that an option writes to a variable, or is an OnFinish.
	Writes bool

	caller  []grpc.CallOption
	initial []variable // the caller's variables when the call began, in the order of the options
}

// variable is the target of an option: one of the three. Each option has its own, because gRPC
// writes to none if a call fails before there is a stream, and their initial values may differ.
type variable struct {
	header, trailer metadata.MD
	peer            peer.Peer
}

// NewOptions takes a copy of the options of a call, and keeps the slice. Call it on the caller's
// goroutine, before the first attempt.
func NewOptions(opts []grpc.CallOption) Options {
	// Clipped: otherwise appends of two attempts' interceptors could write to one array.
	o := Options{caller: slices.Clip(opts)}
	for _, opt := range opts {
		o.Unknown = o.Unknown || !isKnown(opt)
		switch opt := opt.(type) {
		case grpc.HeaderCallOption:
			o.take(variable{header: *opt.HeaderAddr})
		case grpc.TrailerCallOption:
			o.take(variable{trailer: *opt.TrailerAddr})
		case grpc.PeerCallOption:
			o.take(variable{peer: *opt.PeerAddr})
		case grpc.OnFinishCallOption:
			o.Writes = true
		}
	}
	o.Codec = CodecOf(opts)
	return o
}

func (o *Options) take(v variable) {
	if o.initial == nil {
		o.initial = make([]variable, 0, len(o.caller))
	}
	o.initial, o.Writes = append(o.initial, v), true
}

// Results holds the results that one attempt's options have received.
type Results struct {
	caller    []grpc.CallOption
	variables []variable
	usual     [3]variable // memory of variables for one option of each kind

	mu       sync.Mutex
	chosen   bool // delivered when finished
	filled   bool // the caller has the variables: see Ended
	finished bool
	err      error // of OnFinish
}

// Attempt returns the options for one attempt, followed by extra, and the Results to which they
// write. Results is nil if no option writes. The slice is the attempt's own: an interceptor may
// change it. The caller must not use extra again.
func (o *Options) Attempt(extra ...grpc.CallOption) ([]grpc.CallOption, *Results) {
	switch {
	case !o.Writes && len(o.caller) == 0:
		return extra, nil
	case !o.Writes:
		return slices.Concat(o.caller, extra), nil
	}
	n := len(o.caller)
	both := append(make([]grpc.CallOption, 0, 2*n+1+len(extra)), o.caller...)
	r := &Results{caller: both[:n]} // a copy: gRPC may end an attempt after the caller has changed its slice
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
	return slices.Clip(append(opts, extra...)), r
}

// finish is the attempt's OnFinish. gRPC calls it on the goroutine that ended the attempt.
func (r *Results) finish(err error) { r.note(func() { r.finished, r.err = true, err })() }

// Deliver passes the results of the winner to the caller: at once if gRPC has ended the attempt,
// and otherwise in gRPC's OnFinish, for a stream, or if an interceptor has returned early. If
// answered is set, Deliver always passes the variables at once, because an interceptor may have
// answered without gRPC. r may be nil.
func (r *Results) Deliver(answered bool) { r.Choose(answered)() }

// Choose is Deliver without the OnFinish callbacks. The caller must run finish, which makes the
// callbacks that are due, after it has released its locks.
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

// note makes a change. If the attempt is then chosen and finished, note fills the variables, and
// returns the OnFinish callbacks, which follow the variables as in gRPC.
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

// Ended passes the variables to the caller before a method of st, the winning stream, returns an
// error. OnFinish may come too late for that: gRPC calls it on another goroutine if the call's
// context or connection has ended, and a stream of another library may never call it. Ended
// therefore takes the variables from st. caller is the context of the call. r may be nil.
func (r *Results) Ended(st grpc.ClientStream, caller context.Context) {
	if r == nil || !r.awaited() {
		return
	}
	var v variable
	to, gone := peerOf(st, caller), caller.Err() != nil
	ok := Safely(func() { // st may be an interceptor's own stream
		v.header, _ = st.Header()
		v.trailer = st.Trailer()
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	variables := r.variables // without a stream of gRPC's, they are final
	switch {
	case r.finished:
		return
	case ok && to != nil:
		v.peer = *to
		variables = slices.Repeat([]variable{v}, len(variables))
	case gone: // gRPC may still be writing
		return
	}
	r.fill(variables)
	r.filled = true
}

// peerOf returns the peer of a stream that was opened under ctx; nil if it is not gRPC's own. The
// stream must have answered or ended: otherwise gRPC would retry no more.
func peerOf(st grpc.ClientStream, ctx context.Context) (to *peer.Peer) {
	before, _ := peer.FromContext(ctx)
	Safely(func() {
		if p, _ := peer.FromContext(st.Context()); p != before {
			to = p
		}
	})
	return to
}

// awaited reports whether the caller waits for the results, which gRPC has not finished.
func (r *Results) awaited() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.chosen && !r.finished && !r.filled
}

// fill passes variables to the caller, unless the caller has them.
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

var (
	callOption  = reflect.TypeFor[grpc.CallOption]()
	emptyOption = reflect.TypeFor[grpc.EmptyCallOption]()

	known sync.Map // reflect.Type → whether attempts can share options of the type
)

// isKnown reports whether attempts can share an option: one of gRPC's own, or one without an effect in
// gRPC. gRPC calls unexported methods of an option, so a type of another package must embed an option.
// If it embeds grpc.EmptyCallOption, gRPC does nothing with it. Any other embedded option has an effect
// that hedging cannot see: it may write to the caller's memory, or choose a codec.
func isKnown(opt grpc.CallOption) bool {
	switch opt.(type) {
	case nil: // gRPC panics
		return false
	case grpc.StaticMethodCallOption, grpc.FailFastCallOption, grpc.MaxRecvMsgSizeCallOption,
		grpc.MaxSendMsgSizeCallOption, grpc.HeaderCallOption, grpc.TrailerCallOption: // usual: saves the lookup
		return true
	}
	t := reflect.TypeOf(opt)
	if is, ok := known.Load(t); ok {
		return is.(bool)
	}
	is := isOwn(t) || isEmpty(t, 0)
	known.Store(t, is)
	return is
}

func isOwn(t reflect.Type) bool { return t.PkgPath() == emptyOption.PkgPath() }

// isEmpty reports whether all options that a struct, or the struct that a pointer points to, embeds
// are grpc.EmptyCallOption or embed only that. It follows at most eight levels: a type may embed a
// pointer to itself.
func isEmpty(t reflect.Type, level int) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == emptyOption {
		return true
	}
	if t.Kind() != reflect.Struct || isOwn(t) || level > 8 {
		return false
	}
	for i := range t.NumField() {
		f := t.Field(i)
		isOption := f.Anonymous && (f.Type.Implements(callOption) || reflect.PointerTo(f.Type).Implements(callOption))
		if isOption && !isEmpty(f.Type, level+1) {
			return false
		}
	}
	return true
}
