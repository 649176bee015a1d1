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
	Ask        Function
	Final      codeset.Set // the statuses by which a server says that it looked at the request and answered
	HedgeFinal bool        // such a status of a hedge may end the race
	Caller     context.Context
	Of         string // the method
}

// Accepts asks about attempt n. If err is not nil, there is no reply. The function is not asked about failures that could
// not end the race, nor once the caller has gone: then Accepts returns true. It may be called concurrently.
func (j *Judge) Accepts(n int, reply any, err error) bool {
	if err != nil {
		if !j.Final.HasStatus(err) || n > 0 && !j.HedgeFinal || j.Caller.Err() != nil {
			return true
		}
		reply = nil
	}
	return j.Ask(j.Caller, j.Of, reply, err)
}

// AcceptsNone is Accepts of a stream that has ended without a message.
func (j *Judge) AcceptsNone() bool { return j.Ask(j.Caller, j.Of, nil, io.EOF) }
