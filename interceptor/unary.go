// Package interceptor hedges unary gRPC calls.
//
// Add [Unary] to a client, with a scheduler that may serve any number of connections:
//
//	s, err := hedge.New(hedge.WithReadOnlyMethods("/pkg.Svc/Get*"))
//	if err != nil {
//		return err
//	}
//	conn, err := grpc.NewClient(target, creds,
//		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)))
//
// A call then has exactly one outcome, from one attempt: reply, header, trailer, peer and error all come from the attempt
// that won. Call options mean what they mean without hedging.
package interceptor

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/wire"
)

// Unary returns a client interceptor that hedges unary calls as s decides. If s is nil, no call is hedged. The interceptor
// may be used by any number of connections and called concurrently.
//
// The primary runs on the caller's goroutine and writes to the caller's reply. There is one exception: the time while
// resets to the target are limited (see Resets of package stats). Then it runs on a goroutine of its own, with copies of request and reply. All hedges of a call send the
// same copy of the request. Each hedge has a reply of its own, which is moved to the caller's reply if the hedge wins with
// OK. A hedge that wins with an error leaves the reply as it was before the call. A primary that fails leaves in the reply
// what it leaves there without hedging: nothing, unless the server has sent a message before the error.
//
// When a hedge wins, a primary on the caller's goroutine is cancelled, and the call returns after it has returned, because it
// writes to the caller's reply. gRPC itself returns at once. An interceptor that ignores its context delays the answer. So do
// per-RPC credentials that fetch a token without the context that they are given: make them use that context, or fetch the
// token in the background.
//
// If a hedge, or a primary on a goroutine of its own, panics before the call is decided, the caller's goroutine panics with a
// *[hedge.Panic], which has the stack of the attempt.
//
// Messages may be of any kind. A message whose Go type protobuf describes in full, generated or made by dynamicpb, is
// copied. A call with such a request above 1 MiB is not hedged, because copying it could delay an answer that has arrived. A
// message of any other kind is left to its codec, under two conditions:
//
//   - The attempts share the request. So a hedged call returns only after its losers no longer use the request; gRPC stops
//     using it as soon as an attempt is cancelled. The codec must be able to encode one request several times at once. A call is
//     not hedged if its request contains an [io.Reader], a channel or a reference-counted
//     [google.golang.org/grpc/mem.Buffer], because it can be encoded only once.
//   - A hedge decodes into a new zero value, which is then copied to the caller's reply. So a call is not hedged unless its
//     reply is a pointer to a zero value. It is also not hedged if the reply contains a lock, a channel, a function, a
//     reference-counted buffer or something that may point into the reply itself.
//
// If one of these conditions excludes hedges, the call is made without them and counts in Stats.NotReplayable.
//
// Interceptors chained after this one run once for each attempt, concurrently. They must not change the request.
func Unary(s *hedge.Scheduler) grpc.UnaryClientInterceptor {
	r := registry.Of(s)
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		var target string
		var conn feature.Conn // a nil interface if cc is nil, as when a test passes its own invoker
		if cc != nil {
			target, conn = cc.Target(), cc
		}
		ctx = wire.Unnumbered(ctx)
		c := call.Begin(r, ctx, target, method, conn, opts...)
		c.Inspect(req)
		plan, hedged := c.Plan()
		var replies attempt.Reply
		if hedged {
			if replies, hedged = attempt.NewReply(reply); !hedged {
				c.NotReplayable()
			}
		}
		if !hedged {
			if c.TracksFailures() {
				return withTrailer(ctx, &c, method, req, reply, cc, invoker, opts)
			}
			err := invoker(ctx, method, req, reply, cc, opts...)
			c.End(call.End{Err: err})
			return err
		}

		u := unaries.Get().(*unary)
		u.call, u.method, u.req, u.reply, u.replies, u.cc, u.invoker = c, method, req, reply, replies, cc, invoker
		u.request = attempt.NewRequest(req)
		u.options = attempt.NewOptions(opts)
		plan.Detached = plan.Detached && u.detach()
		var cancel context.CancelCauseFunc
		u.primary.ctx, cancel, plan.LetGo = race.AttemptContext(ctx, plan.Detached)
		if !plan.Detached {
			defer cancel(nil)
		}
		u.primary.ctx = u.call.PrimaryContext(u.primary.ctx, target)
		u.openPrimary()

		var was any
		if plan.HedgeFinal && !plan.Detached {
			was = replies.Content()
		}
		out := u.race.Run(ctx, cancel, plan, &u.call, u)
		if winner, ok := out.Winner.(*unaryHedge); ok {
			out.Release(nil)
			switch {
			case out.Err == nil:
				replies.Take(winner.reply)
			case !plan.Detached: // a primary that has failed may have received a message too
				replies.Restore(was)
			}
			winner.results.Deliver()
			return out.Err
		}
		switch {
		case out.Untouched:
			u.call.End(call.End{Err: out.Err, Trailer: u.Seen().Trailer})
			u.primary.results.Deliver()
			u.recycle()
			return out.Err
		case plan.Detached:
			cancel(nil)
			// A primary that has failed may have received a message. It runs on if its caller has gone.
			if out.Err == nil || ctx.Err() == nil && !replies.IsEmpty(u.reply) {
				replies.Take(u.reply)
			}
		}
		u.primary.results.Deliver()
		return out.Err
	}
}

// withTrailer makes and books a call without hedging, and reads its trailer. It is a function of its own so that the
// variable for the trailer is allocated only for such calls.
func withTrailer(ctx context.Context, c *call.Call, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) error {
	own, trailer := *c, new(metadata.MD) // a copy, so that the caller's variable stays on the stack
	err := invoker(ctx, method, req, reply, cc, append(slices.Clip(opts), grpc.Trailer(trailer))...)
	own.End(call.End{Err: err, Trailer: *trailer})
	return err
}

// unaries is a pool. Only calls without a hedge put their unary back: a losing hedge may use its unary after the call.
var unaries = sync.Pool{New: func() any { return new(unary) }}

// unary is one call. It implements [race.Entrant].
type unary struct {
	race    race.Race
	call    call.Call
	options attempt.Options

	method     string
	req, reply any // the caller's
	replies    attempt.Reply
	request    attempt.Request // req, as hedges send it
	cc         *grpc.ClientConn
	invoker    grpc.UnaryInvoker

	primary struct {
		ctx     context.Context
		opts    []grpc.CallOption
		results *attempt.Results
		seen    *race.Seen // nil unless what a failure has seen is of interest
	}
}

func (u *unary) Primary() error {
	return u.invoker(u.primary.ctx, u.method, u.req, u.reply, u.cc, u.primary.opts...)
}

// detach gives the primary its own copy of the request and its own reply, so that it may run on when it has lost. It returns
// false, and changes nothing, if the request cannot be copied.
func (u *unary) detach() bool {
	if u.request.Shared() || !u.request.Replayable() {
		return false
	}
	req, ok := u.request.Message()
	if ok {
		u.req, u.reply = req, u.replies.Make()
	}
	return ok
}

// openPrimary makes the options of the primary. A trailer matters to a throttle or a hedgingPolicy, and all that it has seen
// where resets may have cut a connection.
func (u *unary) openPrimary() {
	tracks, watched := u.call.TracksFailures(), u.call.Watched()
	if !tracks && !watched {
		u.primary.opts, u.primary.results = u.options.Attempt()
		return
	}
	seen := new(race.Seen) // not a field of u, which is reused: an interceptor may keep the options
	extra := []grpc.CallOption{grpc.Trailer(&seen.Trailer)}
	if watched {
		seen.Peer = new(peer.Peer)
		extra = append(extra, grpc.Header(&seen.Header), grpc.Peer(seen.Peer))
	}
	u.primary.seen = seen
	u.primary.opts, u.primary.results = u.options.Attempt(extra...)
}

func (u *unary) Accepts(err error) (ok, open bool) { return u.call.Accepts(0, u.reply, err), false }

func (u *unary) Seen() race.Seen {
	if u.primary.seen == nil {
		return race.Seen{}
	}
	return *u.primary.seen
}

func (u *unary) recycle() {
	u.call, u.options = call.Call{}, attempt.Options{}
	u.req, u.reply, u.replies, u.request, u.cc, u.invoker = nil, nil, attempt.Reply{}, attempt.Request{}, nil, nil
	u.primary.ctx, u.primary.opts, u.primary.results, u.primary.seen = nil, nil, nil, nil
	unaries.Put(u)
}

func (u *unary) Replayable() (ok, shared bool) { return u.request.Replayable(), u.request.Shared() }

func (u *unary) Hedge(n int, _ context.CancelCauseFunc) race.Attempt {
	req, ok := u.request.Message()
	if !ok {
		return nil
	}
	h := &unaryHedge{unary: u, n: n, req: req, reply: u.replies.Make()}
	h.seen.Peer = &h.peer
	h.opts, h.results = u.options.Attempt(grpc.Header(&h.seen.Header), grpc.Trailer(&h.seen.Trailer), grpc.Peer(h.seen.Peer))
	return h
}

// unaryHedge is one hedge. It may outlive the call, so it must not use the caller's memory. Of unary it uses only the
// method, the connection, the invoker, call.HedgeContext, call.Accepts and call.HedgePeer.
type unaryHedge struct {
	*unary
	n          int
	req, reply any
	opts       []grpc.CallOption
	results    *attempt.Results
	seen       race.Seen
	peer       peer.Peer
}

func (h *unaryHedge) Accepts(err error) (ok, open bool) {
	return h.call.Accepts(h.n, h.reply, err), false
}

func (h *unaryHedge) Seen() race.Seen { return h.seen }

func (h *unaryHedge) Run(ctx context.Context) error {
	ctx = h.call.HedgeContext(ctx)
	err := h.invoker(ctx, h.method, h.req, h.reply, h.cc, h.opts...)
	if err == nil {
		call.HedgeAnswered(ctx)
	}
	h.call.HedgePeer(&h.peer)
	return err
}
