// Package rpc has the definitions of gRPC that hedging follows: the metadata of attempts and a
// server's pushback, sets of status codes, service configs, and descriptors of methods.
package rpc

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// ErrLost is the [context.Cause] of a losing attempt's context.
var ErrLost = errors.New("hedge: another attempt of the call was faster")

// PushbackTrailer sets the delay of the next attempt, in milliseconds. A negative value forbids
// further attempts.
const PushbackTrailer = "grpc-retry-pushback-ms"

// Pushback reads the pushback in a trailer. A negative wait forbids further attempts, as does a
// value that is not an int32, or more than one value. ok is false if the trailer has no pushback.
func Pushback(trailer metadata.MD) (wait time.Duration, ok bool) {
	values := trailer[PushbackTrailer] // gRPC gives keys in lower case
	if len(values) == 0 {
		return 0, false
	}
	ms, err := strconv.ParseInt(values[0], 10, 32)
	if err != nil || len(values) > 1 {
		ms = -1
	}
	return time.Duration(ms) * time.Millisecond, true
}

// Served reports whether a gRPC server sent the status err of an attempt on cc, with the given header
// and trailer, and not gRPC itself, a proxy or an interceptor. cc is nil for a channel that is not
// gRPC's own. Then a status without a content type counts as the server's.
//
// gRPC makes a status of its own if a connection breaks or is closed after the headers. So after
// headers, such a status counts as the server's only if the server has sent metadata in its trailer.
func Served(cc *grpc.ClientConn, header, trailer metadata.MD, err error) bool {
	if len(header["content-type"]) > 0 && len(trailer) == 0 && made.HasStatus(err) {
		return false
	}
	for _, md := range []metadata.MD{header, trailer} { // without a header, the content type is in the trailer
		if types := md["content-type"]; len(types) > 0 {
			return strings.HasPrefix(types[0], "application/grpc")
		}
	}
	return cc == nil
}

// made are the statuses that gRPC makes itself for a stream that the server has begun to answer.
var made = CodesOf(codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Internal,
	codes.Unavailable)

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

// CodesBut returns the set of all codes that gRPC defines, except the given ones.
func CodesBut(cs []codes.Code) Codes { return (1<<(MaxCode+1) - 1) &^ CodesOf(cs...) }

// HasStatus reports whether s holds the status of err. A code that gRPC does not define counts as
// Unknown.
func (s Codes) HasStatus(err error) bool {
	c := codes.OK
	if err != nil { // most calls succeed, and need no lookup
		if c = status.Code(err); c > MaxCode {
			c = codes.Unknown
		}
	}
	return s&(1<<c) != 0
}

// Exhausted reports whether err is RESOURCE_EXHAUSTED because of a rate limit. Implementations of
// gRPC have the same status for a message beyond a size limit of the client or the server, with
// these words.
func Exhausted(err error) bool {
	s := status.Convert(err)
	tooLarge := func(words string) bool { return strings.Contains(s.Message(), words) }
	return s.Code() == codes.ResourceExhausted && !tooLarge("message larger than max") &&
		!tooLarge("after decompression larger than max") && !tooLarge("message exceeds maximum size") &&
		!tooLarge("message exceeds the maximum configured message size")
}

// Descriptor returns the descriptor of a full method name; nil if none is linked into the program.
func Descriptor(fullMethod string) protoreflect.MethodDescriptor {
	name := strings.ReplaceAll(strings.TrimPrefix(fullMethod, "/"), "/", ".")
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	m, _ := d.(protoreflect.MethodDescriptor)
	return m
}
