// Package attempt gives each attempt of a call its own state, so that attempts can run at the same
// time: a copy of the request, a reply to receive into, and call options that do not write to the
// caller's memory.
package attempt

import (
	"bytes"
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/grpchedge/hedge/internal/race"
)

// CallOptions are the options of a call. With [grpc.Header], [grpc.Trailer], [grpc.Peer] and
// [grpc.OnFinish], gRPC writes to the caller's memory or calls the caller's code. Each attempt
// therefore gets its own copy of these, and only the winner's results reach the caller.
type CallOptions struct {
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
func NewOptions(opts []grpc.CallOption) CallOptions {
	// Clipped: otherwise appends of two attempts' interceptors could write to one array.
	o := CallOptions{caller: slices.Clip(opts)}
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

func (o *CallOptions) take(v variable) {
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
	chosen   bool  // the caller gets the results once they are finished
	ended    bool  // the caller has the variables from Ended: finish does not replace them
	finished bool  // gRPC has called OnFinish
	err      error // of OnFinish
}

// Attempt returns the options for one attempt, followed by extra, and the Results to which they
// write. Results is nil if no option writes. The slice is the attempt's own: an interceptor may
// change it.
func (o *CallOptions) Attempt(extra ...grpc.CallOption) ([]grpc.CallOption, *Results) {
	if !o.Writes {
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
	r.ended = true
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
	return r.chosen && !r.finished && !r.ended
}

// fill passes variables to the caller, unless Ended has.
func (r *Results) fill(variables []variable) {
	if r.ended {
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

// isKnown reports whether attempts can share an option: one of gRPC's own, or one without an effect
// in gRPC. gRPC calls unexported methods of an option, so a type of another package must embed an
// option. If it embeds grpc.EmptyCallOption, gRPC does nothing with it. Any other embedded option
// has an effect that hedging cannot see: it may write to the caller's memory, or choose a codec.
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

// protobuf returns m as a message, or reports that m is a pointer to a message of the older API. It
// returns neither for a type that embeds a message: a copy would lack the fields besides the
// message, which the call's codec may send.
func (o *CallOptions) protobuf(m any) (message proto.Message, older bool) {
	switch m := m.(type) {
	case proto.Message:
		Safely(func() {
			if m.ProtoReflect().Interface() == m {
				message = m
			}
		})
	case protoadapt.MessageV1:
		older = reflect.TypeOf(m).Kind() == reflect.Pointer && o.Codec == nil
	}
	return message, older
}

// Safely reports whether f returns without a panic of a message's or a stream's methods.
func Safely(f func()) (ok bool) {
	defer func() { _ = recover() }()
	f()
	return true
}

// Replayable reports whether [CallOptions.Copy] may copy the request: a protobuf message of
// [race.MaxRequest] at most. Only Copy checks the size of a message of the older API. Attempts may
// send the request at the same time.
func (o *CallOptions) Replayable(req any) bool {
	m, older := o.protobuf(req)
	return older || fits(m)
}

// Replayable is [CallOptions.Replayable] with gRPC's own codec.
func Replayable(req any) bool { return new(CallOptions).Replayable(req) }

func fits(m proto.Message) (small bool) {
	Safely(func() { small = m != nil && proto.Size(m) <= race.MaxRequest })
	return small
}

// Copy returns a deep copy of a request; nil if the request is not replayable, or copying it
// panics. Attempts may send the request at the same time.
func (o *CallOptions) Copy(req any) (copied any) {
	m, older := o.protobuf(req)
	Safely(func() {
		switch {
		case older:
			copied = decoded(req.(protoadapt.MessageV1))
		case fits(m):
			copied = proto.Clone(m)
		}
	})
	return copied
}

// decoded encodes and decodes a message of the older API. protobuf would copy it by the type's own
// methods, which may copy less than they encode, or share the caller's memory. decoded returns nil
// if the message is too large, encodes differently afterwards, or has fields that are not encoded.
func decoded(m protoadapt.MessageV1) any {
	of := reflect.TypeOf(m).Elem()
	if !allEncoded(of) {
		return nil
	}
	encode := proto.MarshalOptions{Deterministic: true}.Marshal
	sent, err := encode(protoadapt.MessageV2Of(m))
	if err != nil || len(sent) > race.MaxRequest {
		return nil
	}
	copied := reflect.New(of).Interface().(protoadapt.MessageV1)
	if err := proto.Unmarshal(slices.Clone(sent), protoadapt.MessageV2Of(copied)); err != nil {
		return nil
	}
	if again, err := encode(protoadapt.MessageV2Of(copied)); err != nil || !bytes.Equal(again, sent) {
		return nil
	}
	return copied
}

// allEncoded reports whether protobuf encodes all fields of a struct. It panics for another type.
func allEncoded(of reflect.Type) bool {
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Tag.Get("protobuf") == "" && f.Tag.Get("protobuf_oneof") == "" && !strings.HasPrefix(f.Name, "XXX_") {
			return false
		}
	}
	return true
}

// Reply makes the messages into which hedges receive, and moves the winner's to the caller's reply.
type Reply struct {
	caller any
	of     protoreflect.MessageType // nil for the older API
}

// Reply takes the caller's reply. Call it on the caller's goroutine, before the first attempt: gRPC
// may write to the reply as soon as the primary runs. It returns false if a hedge's own message
// could not be moved to the reply afterwards:
//
//   - the reply is not a protobuf message,
//   - the reply holds data that the call's codec may leave in place, or
//   - the reply is of the older API and not empty.
func (o *CallOptions) Reply(reply any) (Reply, bool) {
	m, older := o.protobuf(reply)
	v := reflect.ValueOf(reply)
	switch {
	case m == nil && !older || v.Kind() != reflect.Pointer || v.IsNil():
		return Reply{}, false
	case older:
		return Reply{caller: reply}, v.Elem().IsZero()
	}
	return Reply{caller: reply, of: m.ProtoReflect().Type()}, o.Codec == nil || proto.Size(m) == 0
}

// Make returns an empty message; nil for the zero Reply.
func (r *Reply) Make() any {
	switch {
	case r.of != nil:
		return r.of.New().Interface()
	case r.caller != nil:
		return reflect.New(reflect.TypeOf(r.caller).Elem()).Interface()
	}
	return nil
}

// Take moves m, a message of Make, to the caller's reply, and replaces all content of the reply. No
// attempt may still use the two messages.
func (r *Reply) Take(m any) {
	if r.of == nil {
		reflect.ValueOf(r.caller).Elem().Set(reflect.ValueOf(m).Elem())
		return
	}
	dst := r.caller.(proto.Message)
	proto.Reset(dst)
	proto.Merge(dst, m.(proto.Message))
}

// Content returns a copy of the caller's reply, or nil, without an allocation, if the reply is
// empty. No attempt may be receiving into it yet.
func (r *Reply) Content() any {
	if r.of == nil || proto.Size(r.caller.(proto.Message)) == 0 {
		return nil
	}
	return proto.Clone(r.caller.(proto.Message))
}

// Restore puts content back into the caller's reply, which no attempt may still use. A protobuf
// message with this content stays untouched, because the caller may have kept pointers into it.
func (r *Reply) Restore(content any) {
	if content == nil {
		content = r.Make()
	}
	if r.of == nil || !proto.Equal(r.caller.(proto.Message), content.(proto.Message)) {
		r.Take(content)
	}
}

// Codec is the codec that a call's options choose in place of gRPC's own. It can also receive a
// message as [Bytes].
type Codec struct {
	coder
	name string
}

// Bytes is a message that a [Codec] receives as bytes, because the type of the caller's message is
// not known yet.
type Bytes struct{ data []byte }

type coder interface {
	Marshal(v any) (mem.BufferSlice, error)
	Unmarshal(data mem.BufferSlice, v any) error
}

// CodecOf returns the codec that gRPC chooses for a call with the given options. It returns nil for
// gRPC's own codec, which can encode a message again without a loss, and if the chosen codec does
// not exist: gRPC then fails the call.
func CodecOf(opts []grpc.CallOption) *Codec {
	var chosen coder
	name, subtype := "", ""
	for _, opt := range opts {
		switch opt := opt.(type) {
		case grpc.ForceCodecV2CallOption:
			if chosen = opt.CodecV2; chosen != nil {
				name = opt.CodecV2.Name()
			}
		case grpc.ForceCodecCallOption:
			chosen, name = v1{opt.Codec}, opt.Codec.Name()
		case grpc.CustomCodecCallOption:
			chosen, name = v1{opt.Codec}, ""
		case grpc.ContentSubtypeCallOption:
			subtype = opt.ContentSubtype
		}
	}
	if subtype = cmp.Or(subtype, protocodec.Name); chosen == nil && (subtype != protocodec.Name || !defaultIsOwn()) {
		if c := encoding.GetCodec(subtype); c != nil {
			chosen = v1{c}
		} else if c := encoding.GetCodecV2(subtype); c != nil {
			chosen = c
		}
	}
	if chosen == nil {
		return nil
	}
	return &Codec{coder: chosen, name: name}
}

// defaultIsOwn reports whether the default codec is gRPC's own. Programs register codecs at start.
var defaultIsOwn = sync.OnceValue(func() bool {
	t, own := reflect.TypeOf(encoding.GetCodecV2(protocodec.Name)), "google.golang.org/grpc/encoding/proto"
	return encoding.GetCodec(protocodec.Name) == nil && t.Kind() == reflect.Pointer && t.Elem().PkgPath() == own
})

// Option makes gRPC use the codec, with the content-subtype that the call has without it.
func (c *Codec) Option() grpc.CallOption { return grpc.ForceCodecV2(c) }

// Name implements [encoding.CodecV2]. gRPC derives the content-subtype from it, unless an option
// sets the subtype.
func (c *Codec) Name() string { return c.name }

func (c *Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if b, ok := v.(*Bytes); ok {
		b.data = data.Materialize() // a copy: gRPC frees data
		return nil
	}
	return c.coder.Unmarshal(data, v)
}

// Decode decodes held, a message that an attempt has received, into another message. held is a
// *Bytes or, if c is nil, a protobuf message.
func (c *Codec) Decode(held, into any) error {
	var data mem.BufferSlice
	var err error
	coder := coder(encoding.GetCodecV2(protocodec.Name))
	if b, ok := held.(*Bytes); ok {
		coder, data = c.coder, mem.BufferSlice{mem.SliceBuffer(b.data)}
	} else {
		data, err = coder.Marshal(held)
	}
	if err == nil {
		err = coder.Unmarshal(data, into)
		data.Free()
	}
	if err != nil {
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return nil
}

// v1 adapts a codec of gRPC's older interfaces.
type v1 struct {
	older interface {
		Marshal(v any) ([]byte, error)
		Unmarshal(data []byte, v any) error
	}
}

func (v v1) Marshal(m any) (mem.BufferSlice, error) {
	data, err := v.older.Marshal(m)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

func (v v1) Unmarshal(data mem.BufferSlice, m any) error {
	return v.older.Unmarshal(data.Materialize(), m)
}
