// Package answer asks the user's function of WithAnswer whether it accepts how an attempt ended.
package answer

import (
	"context"
	"io"

	"github.com/grpchedge/hedge/internal/codeset"
)

// Function is that of WithAnswer. err is [io.EOF] for a stream that has ended without a message.
type Function = func(ctx context.Context, method string, reply any, err error) bool

// Judge judges the answers of one call.
type Judge struct {
	function   Function
	final      codeset.Set // the statuses by which a server says that it looked at the request and answered
	hedgeFinal bool        // such a status of a hedge may end the race
	ctx        context.Context
	name       string
}

// NewJudge returns the judge of a call with the given context and method.
func NewJudge(f Function, final codeset.Set, hedgeFinal bool, ctx context.Context, method string) Judge {
	return Judge{f, final, hedgeFinal, ctx, method}
}

// Accepts asks about attempt n. If err is not nil, there is no reply. The function is not asked about failures that could
// not end the race, nor once the caller has gone: then Accepts returns true. It may be called concurrently.
func (j *Judge) Accepts(n int, reply any, err error) bool {
	if err != nil {
		if !j.final.HasStatus(err) || n > 0 && !j.hedgeFinal || j.ctx.Err() != nil {
			return true
		}
		reply = nil
	}
	return j.function(j.ctx, j.name, reply, err)
}

// AcceptsNone is Accepts of a stream that has ended without a message.
func (j *Judge) AcceptsNone() bool { return j.function(j.ctx, j.name, nil, io.EOF) }
