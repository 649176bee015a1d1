package hedgehttp

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/rpc"
)

// codeOf has the gRPC codes of HTTP statuses. Any other status of 400 or more is
// FailedPrecondition, which is final.
var codeOf = map[int]codes.Code{
	http.StatusNotFound:            codes.NotFound,
	http.StatusTooManyRequests:     codes.ResourceExhausted,
	http.StatusInternalServerError: codes.Internal,
	http.StatusBadGateway:          codes.Unavailable,
	http.StatusServiceUnavailable:  codes.Unavailable,
	http.StatusGatewayTimeout:      codes.DeadlineExceeded,
}

// outcomeOf returns the outcome of an attempt for the race: an error with a gRPC status, or nil for
// an answer.
func outcomeOf(res *http.Response, err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case err != nil:
		return status.Error(codes.Unavailable, err.Error())
	case res == nil:
		return status.Error(codes.Internal, "no response")
	case res.StatusCode < 400:
		return nil
	}
	code, ok := codeOf[res.StatusCode]
	if !ok {
		code = codes.FailedPrecondition
	}
	return status.Error(code, res.Status)
}

// pushback returns the Retry-After header of a failed response, in seconds or as a date, as gRPC's
// trailer.
func pushback(res *http.Response, outcome error) metadata.MD {
	if outcome == nil || res == nil {
		return nil
	}
	value := res.Header.Get("Retry-After")
	ms := int64(math.MaxInt32)
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil && seconds >= 0 {
		ms = min(ms, min(seconds, math.MaxInt32)*1000)
	} else if at, err := http.ParseTime(value); err == nil {
		ms = min(ms, max(time.Until(at).Milliseconds(), 0))
	} else {
		return nil
	}
	return metadata.Pairs(rpc.PushbackTrailer, strconv.FormatInt(ms, 10))
}
