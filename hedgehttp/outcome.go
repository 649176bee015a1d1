package hedgehttp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
)

// A meaning is the effect of a range of HTTP statuses on a race. The codes OK and NotFound end the race.
// The other codes are failures, which teach no latency: the race goes on while attempts are in flight.
type meaning struct {
	from, to int
	code     codes.Code
}

// meanings has every status: its first row counts. docs/http.md has the same table.
var meanings = []meaning{
	{from: math.MinInt, to: 399, code: codes.OK},
	{from: 404, to: 404, code: codes.NotFound}, // about the resource, for all callers
	{from: 410, to: 410, code: codes.NotFound},
	{from: 400, to: 400, code: codes.InvalidArgument}, // about the request: the other attempt has the same
	{from: 405, to: 406, code: codes.InvalidArgument},
	{from: 413, to: 417, code: codes.InvalidArgument},
	{from: 422, to: 422, code: codes.InvalidArgument},
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
	return answer{err: unavailable{err}}
}

// unavailable gives an error of the transport the status UNAVAILABLE.
type unavailable struct{ error }

func (u unavailable) GRPCStatus() *status.Status { return status.New(codes.Unavailable, u.Error()) }

func (u unavailable) Unwrap() error { return u.error }

// judge sets the answer from the result of the transport and the beginning of the body.
func (a *attempt) judge() {
	res, end := a.res, a.body.err
	switch a.known = true; {
	case a.err != nil:
		a.end = failed(a.err)
		return
	case res == nil:
		a.end = failed(errors.New("no response"))
		return
	case a.hasNone():
		end = io.EOF
	}
	has := func(m meaning) bool { return m.from <= res.StatusCode && res.StatusCode <= m.to }
	m := meanings[slices.IndexFunc(meanings, has)]
	a.end = answer{decides: m.code == codes.NotFound && !a.made} // a request of WithHedgeRequest names another resource
	if m.code == codes.NotFound && settings.IsRPC(a.req) &&
		!strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		m.code = codes.Unimplemented // the path is the method's; in JSON, Twirp and Connect have a status
	}
	if m.code != codes.OK {
		a.end.err, a.end.pushback = status.Error(m.code, res.Status), rpc.RetryAfter(res.Header)
	}
	if a.end.err != nil && res.Header.Get(rpc.TurnedAwayHeader) != "" {
		a.end = answer{err: status.Error(codes.ResourceExhausted, res.Status), pushback: turnedAway}
		return
	}
	a.judgeBody(m.code == codes.OK, end)
}

// judgeBody completes the answer by the body. The answer is not known if it needs more of the body.
// Once the primary has the headers of a stream, a hedge answers only with the first byte of another
// one. ok reports whether the HTTP status is a success.
func (a *attempt) judgeBody(ok bool, end error) {
	res, late := a.res, a != &a.primary && a.open.Load()
	switch {
	case rpc.InHTTP(a.req, res):
		pushback, err, known := rpc.StatusInHTTP(res, a.body.kept, end == io.EOF)
		if a.known = known; known && err != nil {
			a.end.err, a.end.decides = err, true
			if pushback != nil {
				a.end.pushback = pushback
			}
		}
	case ok && (late || a.streams()):
		a.known = len(a.body.kept) > 0 || end == io.EOF
	}
	if !a.known && (end != nil || len(a.body.kept) >= maxKept) {
		if a.known = true; a.end.err == nil {
			a.end = failed(cmp.Or(end, io.ErrShortBuffer))
		}
	}
	if late && a.known && a.end.err == nil && (len(a.body.kept) == 0 || res.StatusCode >= 300) {
		a.end = failed(errors.New("the primary's stream is open"))
	}
}

// streams reports whether a response answers with the first byte of its body: a server flushes the
// headers of a stream before it has an answer. The events of a GET are a subscription, which may have
// none for long, and answers with its headers unless it is selected.
func (a *attempt) streams() bool {
	mediaType, _, _ := strings.Cut(strings.ToLower(a.res.Header.Get("Content-Type")), ";")
	if slices.Contains(eventTypes, strings.TrimSpace(mediaType)) &&
		(a.call.Named() || a.req.Method != "" && a.req.Method != http.MethodGet) {
		return true
	}
	return a.firstByte != nil && a.firstByte(a.res)
}

// eventTypes are the media types of streams of events. As the response to a GET, they are a
// subscription.
var eventTypes = []string{"text/event-stream", "application/x-ndjson", "application/jsonl", "application/json-seq"}

// turnedAway asks for the next attempt at once: see shed.Bound.Handler.
var turnedAway = metadata.Pairs(rpc.PushbackTrailer, "0")

// maxKept is the size of the largest beginning of a body that is read for its status.
const maxKept = 8 << 10
