package engine

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CodeSet is a set of status codes, one bit each.
type CodeSet uint32

const (
	// MaxCode is the greatest code that gRPC defines.
	MaxCode   = codes.Unauthenticated
	everyCode = CodeSet(1<<(MaxCode+1) - 1)
)

// answers are OK and the final statuses: those by which a server says that it looked at the request and answered.
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

func setOf(cs ...codes.Code) CodeSet {
	var s CodeSet
	for _, c := range cs {
		s |= 1 << c
	}
	return s
}

// AllBut returns the set of every code but those given.
func AllBut(cs []codes.Code) CodeSet { return everyCode &^ setOf(cs...) }

// Has reports whether s holds a code that gRPC defines.
func (s CodeSet) Has(c codes.Code) bool { return s&(1<<c) != 0 }

// has reports whether s holds the status of err. A code that gRPC does not define counts as Unknown.
func (s CodeSet) has(err error) bool {
	c := codes.OK
	if err != nil {
		if c = status.Code(err); c > MaxCode {
			c = codes.Unknown
		}
	}
	return s&(1<<c) != 0
}
