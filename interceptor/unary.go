// Package interceptor hedges unary gRPC calls and, with [DialOptions], server streams. A call has
// exactly one outcome: reply, header, trailer, peer and error all come from the attempt that won.
// Call options keep their meaning.
package interceptor

import (
	"context"
	"slices"
	"sync"

	"go.uber.org/atomic"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/rpc"
)

// Unary returns a client interceptor that hedges unary calls as s decides, or none if s is nil. It
// is safe for concurrent use by any number of connections.
//
// The primary runs on the caller's goroutine and writes to the caller's reply. All hedges of a call
// send the same copy of the request. Each hedge has its own reply, which is moved to the caller's
// if the hedge wins with OK. A hedge that wins with an error restores the reply as it was before
// the call. A primary that fails leaves the reply as plain gRPC does: unchanged, unless the server
// sent a message before the error.
//
// When a hedge wins, the primary is canceled, and the call waits for the primary to return, because
// the primary writes to the caller's reply. An interceptor, or per-RPC credentials, that ignore
// their context delay the answer.
//
// If a hedge panics before the call is decided, the caller's goroutine panics with a
// *[hedge.Panic], which has the hedge's stack.
//
// Unary hedges calls with protobuf messages, generated or from dynamicpb, within these limits:
//
//   - A request has at most 1 MiB: copying a larger one could delay an answer that has arrived.
//   - With a codec other than gRPC's own, the reply must be empty, because such codecs may keep old
//     content.
//   - Messages of the older API, of github.com/golang/protobuf and gogo, need gRPC's own codec, an
//     empty reply, and no fields that protobuf does not encode.
//
// Other calls are left to their primary, and count in stats.Counts.NotReplayable.
//
// Interceptors chained after this one run once for each attempt, concurrently. They must not change
// the request. Their changes to a reply reach the caller.
//
// Hedges go over the connections of hedgeTo in turn, if there are any: see [HedgeTo].
func Unary(s *hedge.Scheduler, hedgeTo ...grpc.ClientConnInterface) grpc.UnaryClientInterceptor {
	r, channels := (*registry.Registry)(s), call.ChannelsOf(hedgeTo)
	return func(caller context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		caller, again := call.Enter(caller, r, method, cc)
		if again {
			return invoker(caller, method, req, reply, cc, opts...)
		}
		u := unaries.Get().(*unary)
		u.method, u.cc, u.invoker, u.registry, u.req, u.reply, u.opts = method, cc, invoker, r, req, reply, opts
		cancel := u.begin(caller, channels)
		defer cancel(nil)
		return u.conclude(u.call.Run(caller, cancel, &u.race, u))
	}
}

// unaries is a pool. A call with a hedge does not return its unary, because a losing hedge may
// still use it.
var unaries = sync.Pool{New: func() any { return new(unary) }}

// unary is one call, and its primary. It implements [race.Entrant].
type unary struct {
	race race.Race
	unaryCall
}

// unaryCall is the part of a unary that is not reused.
type unaryCall struct {
	call    call.Call
	method  string
	cc      *grpc.ClientConn
	invoker grpc.UnaryInvoker

	registry *registry.Registry

	options attempt.CallOptions
	memory  [8]grpc.CallOption // of options, saves an allocation
	replies attempt.Reply
	final   bool // call.HedgeFinal: a hedge's status may end the race
	was     any  // with final: the content of the caller's reply before the call
	copied  any  // the request of all hedges, which do not change it; nil before the first hedge

	// of the primary
	ctx        context.Context
	req, reply any // the caller's
	opts       []grpc.CallOption
	results    *attempt.Results
	trailer    *trailer // nil unless the trailers of failures matter
}

// begin begins the call, and returns the function that cancels the primary. Like conclude, it is
// apart from the interceptor to keep the stack of a waiting caller small.
func (u *unary) begin(caller context.Context, channels *call.Channels) (cancel context.CancelCauseFunc) {
	target, conn := call.ConnOf(u.cc)
	u.call = call.Begin(u.registry, caller, target, u.method, conn, u.opts...)
	u.call.Inspect(u.req)
	if u.call.Hedged || u.call.WouldBeHedged {
		u.options = attempt.NewOptions(append(u.memory[:0], u.opts...))
		var ok bool
		if u.replies, ok = u.options.Reply(u.reply); u.options.Unknown {
			u.call.UnknownOption()
		} else if !ok || u.req == u.reply { // the primary may overwrite its request
			u.call.NotReplayable()
		}
	}
	if !u.call.Hedged {
		u.ctx, u.opts = caller, append(slices.Clip(u.opts), u.trailerOptions()...)
		return func(error) {}
	}
	u.ctx, cancel = context.WithCancelCause(caller)
	u.call.RecordPicks(u.req, attempt.Replayable)
	if channels != nil {
		u.call.GoElsewhere(channels.Of, true)
	}
	// The primary has the caller's own options if they write nothing and no trailer is kept. Otherwise
	// it has copies, as each hedge does.
	if extra := u.trailerOptions(); len(u.opts) == 0 {
		u.opts = extra
	} else if u.options.Writes || extra != nil {
		u.opts, u.results = u.options.Attempt(extra...)
	}
	if u.final = u.call.HedgeFinal; u.final {
		u.was = u.replies.Content()
	}
	return cancel
}

// trailerOptions returns the options that keep the primary's trailer for a throttle or a
// hedgingPolicy.
func (u *unary) trailerOptions() []grpc.CallOption {
	if !u.call.TracksFailures {
		return nil
	}
	kept := new(struct { // not in u, which is reused, because an interceptor may keep the options
		trailer
		options [2]grpc.CallOption // here to save an allocation
	})
	u.trailer = &kept.trailer
	kept.options = [2]grpc.CallOption{grpc.Trailer(&u.trailer.md), grpc.OnFinish(u.trailer.finish)}
	return kept.options[:]
}

// trailer is the trailer of an attempt. An interceptor inside may return before gRPC has ended the
// attempt.
type trailer struct {
	md       metadata.MD
	finished atomic.Bool // gRPC has ended the attempt
}

func (t *trailer) finish(error) { t.finished.Store(true) }

// of returns the trailer; nil while gRPC may write it. A channel that is not gRPC's own may call no
// OnFinish.
func (t *trailer) of(cc *grpc.ClientConn) metadata.MD {
	if cc != nil && !t.finished.Load() {
		return nil
	}
	return t.md
}

func (u *unary) Primary() race.End {
	ctx := newContext()
	ctx.Context = u.ctx
	u.call.Leg.SetUp(ctx, u.registry, u.method)
	defer ctx.Made.Store(true)
	end := race.End{Err: u.invoker(ctx, u.method, u.req, u.reply, u.cc, u.opts...), Reply: u.reply}
	if u.trailer != nil {
		end.Trailer = u.trailer.of(u.cc)
	}
	// A dry run counts a hedge that would have been due, and that could not have been sent.
	if u.call.WouldBeHedged && u.call.Late() && u.options.Copy(u.req) == nil {
		u.call.NotReplayable()
	}
	return end
}

// slab has memory for the contexts of several primaries, which saves allocations. Contexts are not
// reused: an interceptor may keep one.
type slab struct {
	contexts [7]race.Context
	used     int
}

var slabs = sync.Pool{New: func() any { return new(slab) }}

func newContext() *race.Context {
	s := slabs.Get().(*slab)
	ctx := &s.contexts[s.used]
	if s.used++; s.used < len(s.contexts) {
		slabs.Put(s)
	}
	return ctx
}

func (u *unary) Replayable() bool { return u.copied != nil || u.options.Replayable(u.req) }

func (u *unary) Hedge(n int, ctx *race.Context) race.Attempt {
	if u.copied == nil {
		u.copied = u.options.Copy(u.req)
	}
	if u.copied == nil {
		return nil
	}
	h := &unaryHedge{unary: u, n: n, cancel: ctx.Cancel, req: u.copied, reply: u.replies.Make()}
	own := []grpc.CallOption{grpc.Trailer(&h.trailer.md), grpc.OnFinish(h.trailer.finish)}
	if u.final { // only then does Served count
		own = append(own, grpc.Header(&h.header))
	}
	h.opts, h.results = u.options.Attempt(own...)
	return h
}

// unaryHedge is one hedge. It may run on after the call, so it uses no memory of the caller's: its
// request is a copy, and it has its own reply and call options.
type unaryHedge struct {
	unary      *unary
	n          int
	cancel     context.CancelCauseFunc
	req, reply any
	opts       []grpc.CallOption
	results    *attempt.Results
	header     metadata.MD
	trailer    trailer
}

func (h *unaryHedge) Run(ctx *race.Context) race.End {
	u, end := h.unary, race.End{Reply: h.reply}
	leg, cc := u.call.LegOf(h.n), u.cc
	leg.SetUp(ctx, u.registry, u.method)
	defer ctx.Made.Store(true)
	if to := leg.Channel; to != nil {
		cc = to.CC
		end.Err = to.Invoke(ctx, u.method, h.req, h.reply, h.opts...)
	} else {
		end.Err = u.invoker(ctx, u.method, h.req, h.reply, cc, h.opts...)
	}
	switch {
	case end.Err == nil:
		ctx.Answered()
		return end
	case h.trailer.finished.Load(): // otherwise gRPC may be writing
		end.Served = rpc.Served(cc, h.header, h.trailer.md, end.Err)
	default:
		end.Served = rpc.Served(cc, nil, nil, end.Err)
	}
	end.Trailer = h.trailer.of(cc)
	return end
}

// conclude delivers the attempt that decided the call.
func (u *unary) conclude(out race.Result) error {
	if winner, ok := out.Winner.(*unaryHedge); ok {
		winner.cancel(nil)
		if out.Err == nil {
			u.replies.Take(winner.reply)
		} else { // a primary that failed may have received a message
			u.replies.Restore(u.was)
		}
		winner.results.Deliver(true) // a failure that decides was sent by the server, so gRPC has ended the attempt
		return out.Err
	}
	u.results.Deliver(out.Err == nil || u.cc == nil) // without cc, no gRPC may have run
	if out.Untouched {
		u.unaryCall = unaryCall{}
		unaries.Put(u)
	}
	return out.Err
}
