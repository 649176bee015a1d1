// Package codeset has sets of gRPC status codes.
package codeset

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Set is a set of status codes, one bit each.
type Set uint32

// MaxCode is the greatest code that gRPC defines.
const MaxCode = codes.Unauthenticated

// Answers are OK and the final statuses: those by which a server says that it looked at the request and answered.
var Answers = Of(
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

func Of(cs ...codes.Code) Set {
	var s Set
	for _, c := range cs {
		s |= 1 << c
	}
	return s
}

func AllBut(cs []codes.Code) Set { return (1<<(MaxCode+1) - 1) &^ Of(cs...) }

// HasStatus reports whether s holds the status of err. A code that gRPC does not define counts as Unknown.
func (s Set) HasStatus(err error) bool {
	c := codes.OK
	if err != nil { // most calls end well, and are not asked for their status
		if c = status.Code(err); c > MaxCode {
			c = codes.Unknown
		}
	}
	return s&(1<<c) != 0
}
