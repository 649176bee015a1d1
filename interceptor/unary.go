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
	"github.com/grpchedge/hedge/internal/race"
)

// Unary returns a client interceptor that hedges unary calls as s decides. With a nil s it hedges none.
//
// A call that needs no hedge runs on the caller's goroutine, into the caller's reply. A hedge has a copy of
// the request and a reply of its own, which is moved to the caller's if the hedge wins. Replies may be
// protobuf messages or, for other codecs, any non-nil pointer; a call with another reply is not hedged. When
// the request is not a protobuf message, a hedged call returns only after its losers have let go of it, which
// gRPC has them do at once when they are cancelled.
//
// Interceptors chained after this one run once for each attempt, concurrently.
func Unary(s *hedge.Scheduler) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		var target string
		var conn hedge.Conn // a nil interface where cc is nil, as with a binding that brings its own invoker
		if cc != nil {
			target, conn = cc.Target(), cc
		}
		call := s.Begin(ctx, target, method, conn, opts...)
		call.Classify(req)
		delay, hedged := call.Delay()
		var own attempt.Reply
		if hedged {
			if own, hedged = attempt.NewReply(reply); !hedged {
				call.NotReplayable()
			}
		}
		heeds := call.Heeds()
		if !hedged {
			var err error
			if heeds {
				var trailer *metadata.MD
				if trailer, err = withTrailer(ctx, method, req, reply, cc, invoker, opts); err != nil {
					call.Failed(err, *trailer)
				}
			} else {
				err = invoker(ctx, method, req, reply, cc, opts...)
			}
			call.Ended(err)
			return err
		}

		u := unaries.Get().(*unary)
		u.call, u.method, u.req, u.reply, u.own, u.cc, u.invoker = call, method, req, reply, own, cc, invoker
		u.race.Shared = !attempt.Copyable(req)
		u.options = attempt.NewOptions(opts)
		var cancel context.CancelCauseFunc
		u.primary.ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		u.primary.ctx = u.call.PrimaryContext(u.primary.ctx, target)
		if heeds {
			u.primary.opts, u.primary.results = u.options.Attempt(grpc.Trailer(&u.primary.trailer))
		} else {
			u.primary.opts, u.primary.results = u.options.Attempt()
		}

		out := u.race.Run(ctx, cancel, delay, &u.call, u)
		if out.Winner == nil {
			u.primary.results.Deliver()
			if out.Untouched && !heeds { // an interceptor below may keep the options, and one now writes to u
				u.recycle()
			}
			return out.Err
		}
		out.Release(nil)
		winner := out.Winner.(*unaryHedge)
		u.own.Take(winner.reply)
		winner.results.Deliver()
		return out.Err
	}
}

// withTrailer makes a call as it would be made without hedging, and has its trailer too. Apart, so that only a call of
// which it is wanted pays for it.
func withTrailer(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) (*metadata.MD, error) {
	trailer := new(metadata.MD)
	return trailer, invoker(ctx, method, req, reply, cc, append(slices.Clip(opts), grpc.Trailer(trailer))...)
}

// unaries holds what calls that needed no hedge have left. Others leave theirs to their losers.
var unaries = sync.Pool{New: func() any { return new(unary) }}

// unary is one call, the race's entrant.
type unary struct {
	race    race.Race
	call    hedge.Call
	options attempt.Options

	method     string
	req, reply any // the caller's
	own        attempt.Reply
	cc         *grpc.ClientConn
	invoker    grpc.UnaryInvoker

	primary struct {
		ctx     context.Context
		opts    []grpc.CallOption
		results *attempt.Results
		trailer metadata.MD // known only of a call that heeds failures
	}
}

func (u *unary) Primary() error {
	return u.invoker(u.primary.ctx, u.method, u.req, u.reply, u.cc, u.primary.opts...)
}

func (u *unary) Trailer() metadata.MD { return u.primary.trailer }

func (u *unary) recycle() {
	u.call, u.options = hedge.Call{}, attempt.Options{}
	u.req, u.reply, u.own, u.cc, u.invoker = nil, nil, attempt.Reply{}, nil, nil
	u.primary.ctx, u.primary.opts, u.primary.results = nil, nil, nil
	unaries.Put(u)
}

func (u *unary) Hedge(int, context.CancelCauseFunc) race.Attempt {
	h := &unaryHedge{unary: u, reply: u.own.Make()}
	h.req, _ = attempt.CopyRequest(u.req)
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
