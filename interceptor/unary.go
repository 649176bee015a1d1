// Package interceptor hedges unary gRPC calls.
//
// Add [Unary] to a client, with a scheduler that may serve any number of connections:
//
//	s, err := hedge.New(hedge.WithIdempotentOnly())
//	if err != nil {
//		return err
//	}
//	conn, err := grpc.NewClient(target, creds,
//		grpc.WithChainUnaryInterceptor(interceptor.Unary(s)))
//
// A call then has exactly one outcome, from one attempt: reply, header, trailer, peer and error all come from
// the attempt that won, and call options mean what they mean without hedging.
package interceptor

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/attempt"
	"github.com/grpchedge/hedge/internal/engine"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/wire"
)

// Unary returns a client interceptor that hedges unary calls as s decides. With a nil s it hedges none.
//
// A call that needs no hedge runs on the caller's goroutine, into the caller's reply. A hedge has a reply of its own, which
// is moved to the caller's if the hedge wins with an answer, and a copy of the request, which all hedges of the call share.
// As without hedging, a call that fails leaves the reply as it was.
//
// When a hedge wins, the primary is cancelled, and the call returns when the primary has: the reply that it writes to is
// the caller's. gRPC returns at once. What does not look at its context holds the answer back until it returns, for
// example an interceptor, or per-RPC credentials that fetch a token without the context that they are given. Let those
// fetch it in the background, or end with their context.
//
// A panic of a hedge surfaces on the caller's goroutine, as a *[hedge.Panic] that holds the stack of the hedge.
//
// Messages may be of any kind. One whose Go type protobuf describes in full, generated or made by dynamicpb, is copied. A
// call with a request of that kind above 1 MiB is not hedged, since copying it could hold up an answer that is there. Every
// other message is left to its codec:
//
//   - The attempts share a request, so a hedged call returns only after its losers have let go of it, which gRPC has them
//     do at once when they are cancelled. Its codec may be encoding it several times at once. A request that can be encoded
//     only once, as it has an [io.Reader], a channel or a reference counted [google.golang.org/grpc/mem.Buffer] in it, is not hedged.
//   - A hedge decodes into a new zero value, which is then copied to the caller's reply. So a call is not hedged if its reply
//     is no pointer to a zero value, or has a lock, such a buffer or something that may point into the reply itself.
//
// Where that rules out hedges, the call is made as it would be without hedging and is counted in Stats.NotReplayable.
//
// Interceptors chained after this one run once for each attempt, concurrently. They must not change the request.
func Unary(s *hedge.Scheduler) grpc.UnaryClientInterceptor {
	e := engine.Of(s)
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		var target string
		var conn engine.Conn // a nil interface where cc is nil, as with a binding that brings its own invoker
		if cc != nil {
			target, conn = cc.Target(), cc
		}
		ctx = wire.Unnumbered(ctx)
		call := e.Begin(ctx, target, method, conn, opts...)
		call.Classify(req)
		plan, hedged := call.Plan()
		var own attempt.Reply
		if hedged {
			if own, hedged = attempt.NewReply(reply); !hedged {
				call.NotReplayable()
			}
		}
		if !hedged {
			if call.Heeds() {
				return withTrailer(ctx, &call, method, req, reply, cc, invoker, opts)
			}
			err := invoker(ctx, method, req, reply, cc, opts...)
			call.Ended(err)
			return err
		}

		u := unaries.Get().(*unary)
		u.call, u.method, u.req, u.reply, u.own, u.cc, u.invoker = call, method, req, reply, own, cc, invoker
		u.request = attempt.NewRequest(req)
		u.options = attempt.NewOptions(opts)
		var cancel context.CancelCauseFunc
		u.primary.ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		u.primary.ctx = u.call.PrimaryContext(u.primary.ctx, target)
		if u.call.Heeds() {
			u.primary.trailer = new(metadata.MD) // not of u, as an interceptor below may keep the options
			u.primary.opts, u.primary.results = u.options.Attempt(grpc.Trailer(u.primary.trailer))
		} else {
			u.primary.opts, u.primary.results = u.options.Attempt()
		}

		var was attempt.Content
		if plan.HedgeFinal {
			was = own.Content()
		}
		out := u.race.Run(ctx, cancel, plan, &u.call, u)
		if out.Winner == nil {
			u.primary.results.Deliver()
			if out.Untouched {
				u.call.Unraced(out.Err, u.Trailer())
				u.recycle()
			}
			return out.Err
		}
		out.Release(nil)
		winner := out.Winner.(*unaryHedge)
		switch {
		case out.Err == nil:
			u.own.Take(winner.reply)
		case u.primary.answered: // as of a call that fails without hedging, the reply stays what it was
			u.own.Restore(was)
		}
		winner.results.Deliver()
		return out.Err
	}
}

// withTrailer makes and books a call as it would be made without hedging, and has its trailer too. Apart, so that only a call
// of which it is wanted pays for it.
func withTrailer(ctx context.Context, call *engine.Call, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) error {
	c, trailer := *call, new(metadata.MD) // a copy, so that call need not be on the heap
	err := invoker(ctx, method, req, reply, cc, append(slices.Clip(opts), grpc.Trailer(trailer))...)
	c.Unraced(err, *trailer)
	return err
}

// unaries holds what calls that needed no hedge have left. Others leave theirs to their losers.
var unaries = sync.Pool{New: func() any { return new(unary) }}

// unary is one call, the race's entrant.
type unary struct {
	race    race.Race
	call    engine.Call
	options attempt.Options

	method     string
	req, reply any // the caller's
	own        attempt.Reply
	request    attempt.Request // req, as hedges send it
	cc         *grpc.ClientConn
	invoker    grpc.UnaryInvoker

	primary struct {
		ctx     context.Context
		opts    []grpc.CallOption
		results *attempt.Results
		trailer *metadata.MD // nil unless failures are of interest

		answered bool
	}
}

func (u *unary) Primary() error {
	err := u.invoker(u.primary.ctx, u.method, u.req, u.reply, u.cc, u.primary.opts...)
	u.primary.answered = err == nil
	return err
}

func (u *unary) Trailer() metadata.MD {
	if u.primary.trailer == nil {
		return nil
	}
	return *u.primary.trailer
}

func (u *unary) recycle() {
	u.call, u.options = engine.Call{}, attempt.Options{}
	u.req, u.reply, u.own, u.request, u.cc, u.invoker = nil, nil, attempt.Reply{}, attempt.Request{}, nil, nil
	u.primary.ctx, u.primary.opts, u.primary.results, u.primary.trailer, u.primary.answered = nil, nil, nil, nil, false
	unaries.Put(u)
}

func (u *unary) Replayable() (ok, shared bool) { return u.request.Replayable(), u.request.Shared() }

func (u *unary) Hedge(int, context.CancelCauseFunc) race.Attempt {
	req, ok := u.request.Repeat()
	if !ok {
		return nil
	}
	h := &unaryHedge{unary: u, req: req, reply: u.own.Make()}
	h.opts, h.results = u.options.Attempt(grpc.Trailer(&h.trailer))
	return h
}

// unaryHedge is one hedge. It may outlive the caller's call, so it holds nothing of the caller's but what the
// caller may not change: of unary it reads only the method, the connection, the invoker and the call's record.
type unaryHedge struct {
	*unary
	req, reply any
	opts       []grpc.CallOption
	results    *attempt.Results
	trailer    metadata.MD
}

func (h *unaryHedge) Trailer() metadata.MD { return h.trailer }

func (h *unaryHedge) Run(ctx context.Context) error {
	return h.invoker(h.call.HedgeContext(ctx), h.method, h.req, h.reply, h.cc, h.opts...)
}
