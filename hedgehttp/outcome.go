package hedgehttp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/rpc"
)

// A meaning is what a range of HTTP statuses means to a race. The codes OK and NotFound end the race.
// The other codes are failures, which teach no latency: the race goes on while attempts are in flight.
type meaning struct {
	from, to int
	code     codes.Code
}

// meanings has every status: its first row counts. docs/http.md has the same table.
var meanings = []meaning{
	{from: math.MinInt, to: 399, code: codes.OK},
	{from: 404, to: 404, code: codes.NotFound}, // about the resource, whoever asks
	{from: 410, to: 410, code: codes.NotFound},
	{from: 429, to: 429, code: codes.ResourceExhausted}, // reduces hedges: see docs/guard.md
	{from: 400, to: 499, code: codes.Aborted},           // the other attempt may hold a lock, or have used up a nonce
	{from: 500, to: 500, code: codes.Internal},
	{from: 504, to: 504, code: codes.DeadlineExceeded},
	{from: 501, to: math.MaxInt, code: codes.Unavailable}, // 524 and 529: an overloaded service
}

// answer is the end of an attempt as the race sees it.
type answer struct {
	err      error       // with a gRPC status; nil for a success
	decides  bool        // if err is of a hedge, it ends the race
	pushback metadata.MD // the server's, in gRPC's trailer
}

// failed returns the answer of an attempt without a response.
func failed(err error) answer {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return answer{err: status.FromContextError(err).Err()}
	}
	return answer{err: status.Error(codes.Unavailable, err.Error())}
}

// firstAnswer returns the answer by what a transport has returned, as answerOf does.
func (x *exchange) firstAnswer(req *http.Request, res *http.Response, err error) (a answer, known bool) {
	switch {
	case err != nil:
		return failed(err), true
	case res == nil:
		return failed(errors.New("no response")), true
	case hasNone(req, res):
		return x.answerOf(req, res, nil, io.EOF)
	}
	return x.answerOf(req, res, nil, nil)
}

// answerOf returns the answer of a response by the beginning of its body, and by the error that ended
// the body. known is false if the answer needs more of the body.
func (x *exchange) answerOf(req *http.Request, res *http.Response, kept []byte, end error) (a answer, known bool) {
	has := func(m meaning) bool { return m.from <= res.StatusCode && res.StatusCode <= m.to }
	m := meanings[slices.IndexFunc(meanings, has)]
	a.decides = m.code == codes.NotFound
	if m.code != codes.OK {
		a.err, a.pushback = status.Error(m.code, res.Status), rpc.RetryAfter(res.Header)
	}
	switch known = true; {
	case a.err != nil && res.Header.Get(rpc.TurnedAwayHeader) != "":
		return answer{err: status.Error(codes.ResourceExhausted, res.Status), pushback: turnedAway}, true
	case rpc.InHTTP(req, res):
		pushback, err, ok := rpc.StatusInHTTP(res, kept, end == io.EOF)
		if known = ok; known && err != nil {
			a.err, a.decides = err, true
			if pushback != nil {
				a.pushback = pushback
			}
		}
	case m.code == codes.OK && x.streams(req, res):
		known = len(kept) > 0 || end == io.EOF
	}
	if !known && (end != nil || len(kept) >= maxKept) {
		if known = true; a.err == nil {
			a = failed(cmp.Or(end, io.ErrShortBuffer))
		}
	}
	return a, known
}

// turnedAway asks for the next attempt at once: see shed.Bound.Handler.
var turnedAway = metadata.Pairs(rpc.PushbackTrailer, "0")

// maxKept is the size of the largest beginning of a body that is read for its status.
const maxKept = 8 << 10
