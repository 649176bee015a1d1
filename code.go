package hedge

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// codeSet is a set of status codes, one bit each.
type codeSet uint32

const (
	maxCode   = codes.Unauthenticated
	everyCode = codeSet(1<<(maxCode+1) - 1)
)

// answers are the statuses by which a server says that it looked at the request and answered.
var answers = setOf(
	codes.OK,
	codes.InvalidArgument,
	codes.NotFound,
	codes.AlreadyExists,
	codes.PermissionDenied,
	codes.Unauthenticated,
	codes.FailedPrecondition,
	codes.OutOfRange,
	codes.Unimplemented,
)

func setOf(cs ...codes.Code) codeSet {
	var s codeSet
	for _, c := range cs {
		s |= 1 << c
	}
	return s
}

func (s codeSet) without(c codes.Code) codeSet { return s &^ (1 << c) }

// has reports whether s holds the status of err. A code that gRPC does not define counts as Unknown.
func (s codeSet) has(err error) bool {
	c := codes.OK
	if err != nil {
		if c = status.Code(err); c > maxCode {
			c = codes.Unknown
		}
	}
	return s&(1<<c) != 0
}
