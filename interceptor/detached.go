package interceptor

import (
	"context"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/wire"
)

// detach gives the primary its own copy of the request and its own reply, so that it may run on when it has lost. It returns
// false, and changes nothing, if the request cannot be copied.
func (u *unary) detach() bool {
	if u.request.Shared() || !u.request.Replayable() {
		return false
	}
	req, ok := u.request.Repeat()
	if ok {
		u.req, u.reply = req, u.replies.Make()
	}
	return ok
}

// again is a further attempt of a call that had failed, and the call's outcome.
type again struct {
	*unaryHedge
	err error
}

// repeat makes further attempts of a call that has failed because its connection was cut after resets. It returns the one
// that decides the call, or nil if the failure stays. It runs on the caller's goroutine, and writes to the caller's reply.
func (u *unary) repeat(ctx context.Context, out race.Outcome, reply any) *again {
	err := out.Err
	for n := out.Hedges + 1; u.request.Resendable() && u.call.Repeats(err); n++ {
		h := &unaryHedge{unary: u, req: u.req, reply: reply}
		h.opts, h.results = u.options.Attempt()
		err = h.Run(wire.HedgeContext(ctx, n))
		decides := u.call.Decides(err)
		u.call.ReportRepeat(n, decides)
		if decides {
			return &again{h, err}
		}
	}
	return nil
}
