package rpc

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Codes is a set of status codes, one bit each.
type Codes uint32

// MaxCode is the greatest code that gRPC defines.
const MaxCode = codes.Unauthenticated

// Answers are OK and the final statuses: the statuses of a server that has looked at the request.
var Answers = CodesOf(
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

func CodesOf(cs ...codes.Code) Codes {
	var s Codes
	for _, c := range cs {
		s |= 1 << c
	}
	return s
}

// CodesBut returns the set of all codes that gRPC defines, but the given ones.
func CodesBut(cs []codes.Code) Codes { return (1<<(MaxCode+1) - 1) &^ CodesOf(cs...) }

// HasStatus reports whether s holds the status of err. A code that gRPC does not define counts as
// Unknown.
func (s Codes) HasStatus(err error) bool {
	c := codes.OK
	if err != nil { // most calls end well, and are not asked for their status
		if c = status.Code(err); c > MaxCode {
			c = codes.Unknown
		}
	}
	return s&(1<<c) != 0
}
