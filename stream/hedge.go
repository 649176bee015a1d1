package stream

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/grpchedge/hedge/internal/call"
)

// hedgeAttempt is one hedge. It implements [race.Attempt], [race.Judge] and [race.Drainer].
type hedgeAttempt struct {
	streamAttempt
	contest *contest
	n       int
}

func (h *hedgeAttempt) Run(ctx context.Context) error {
	c := h.contest.stream
	ctx = c.call.HedgeContext(ctx)
	var to peer.Peer // filled before OnFinish
	err := h.open(ctx, &c.opener, grpc.Peer(&to), grpc.OnFinish(func(err error) {
		c.finish(&h.streamAttempt, err)
		c.call.HedgePeer(&to)
	}))
	if err != nil {
		h.ClientStream = failedStream{ctx, err}
		h.ended = err
	} else if err := c.request.sendTo(h.ClientStream); err != nil && err != io.EOF { // EOF: the stream has ended; RecvMsg knows how
		h.ended = err
	} else if err := h.CloseSend(); err != nil {
		h.ended = err
	}
	if h.ended != nil {
		if h.contest.goal == firstMessage {
			h.err = h.ended
		}
		return h.ended
	}
	err = h.awaitGoal(h.contest, h.into)
	if err == nil {
		call.HedgeAnswered(ctx)
	}
	return err
}

func (h *hedgeAttempt) Accepts(error) (ok, open bool) { return h.accepted(h.contest, h.n, h.into) }

func (h *hedgeAttempt) Drain() { h.drain(&h.contest.stream.opener) }
