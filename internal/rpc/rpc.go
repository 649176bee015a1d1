// Package rpc has the definitions of gRPC that hedging follows: the metadata of attempts and a
// server's pushback, sets of status codes, service configs, and descriptors of methods. It also has
// their forms in HTTP: headers of hedges, and statuses in responses of gRPC, gRPC-Web and Connect.
package rpc

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/textproto"
	"slices"
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

// Served reports whether a gRPC server sent the status err of an attempt on cc, with the given
// header and trailer, and not gRPC itself, a proxy or an interceptor. cc is nil for a channel that
// is not gRPC's own. Then a status without a content type counts as the server's.
//
// gRPC makes a status of its own if a connection breaks or is closed after the headers. So after
// headers, such a status counts as the server's only if the server has sent metadata in its
// trailer.
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

// The request metadata keys of hedges.
const (
	// AttemptsHeader has the number of previous attempts of the call. It is absent on a primary.
	AttemptsHeader = "grpc-previous-rpc-attempts"
	// InFlightHeader is 1 for a hedge that was sent while its primary was in flight, so that the
	// call does not depend on it.
	InFlightHeader = "hedge-primary-in-flight"
)

// Marks returns a context with only the outgoing metadata of ctx, marked for hedge n of a call.
// primaryInFlight reports whether the call's primary is in flight.
func Marks(ctx context.Context, n int, primaryInFlight bool) context.Context {
	md := metadata.Join(unmarked(ctx), metadata.Pairs(AttemptsHeader, strconv.Itoa(n)))
	if primaryInFlight {
		md.Set(InFlightHeader, "1")
	}
	return metadata.NewOutgoingContext(context.Background(), md)
}

// Unmarked returns a context with the outgoing metadata of ctx, without the marks of hedges.
func Unmarked(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, unmarked(ctx))
}

func unmarked(ctx context.Context) metadata.MD {
	md, _ := metadata.FromOutgoingContext(ctx)
	md.Delete(AttemptsHeader)
	md.Delete(InFlightHeader)
	return md
}

// PreviousAttempts is hedge.PreviousAttempts.
func PreviousAttempts(ctx context.Context) int {
	values := metadata.ValueFromIncomingContext(ctx, AttemptsHeader)
	if len(values) == 0 {
		return 0
	}
	// The client's own attempt has the last value. A proxy may have passed on an earlier value.
	n, err := strconv.Atoi(values[len(values)-1])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// PrimaryInFlight reports whether the handler with the context ctx serves a hedge that was sent
// while its primary was in flight.
func PrimaryInFlight(ctx context.Context) bool {
	return PreviousAttempts(ctx) > 0 && isSet(metadata.ValueFromIncomingContext(ctx, InFlightHeader))
}

// isSet reports whether a mark has a number above 0. A proxy may give each request an empty mark,
// or a 0.
func isSet(mark []string) bool {
	return slices.ContainsFunc(mark, func(value string) bool {
		n, err := strconv.Atoi(value)
		return err == nil && n > 0
	})
}

// The headers of HTTP hedges, and of an answer that turns one away. HTTP's form of InFlightHeader
// has the same name.
const (
	httpAttempt  = "Hedge-Attempt" // the number of the hedge, 1 for the first
	httpInFlight = "Hedge-Primary-In-Flight"
	// TurnedAwayHeader is 1 in a response of 400 or more: this server has no room for a hedge, and
	// another one may have.
	TurnedAwayHeader = "Hedge-Turned-Away"
)

// MarkHTTP replaces the marks in the headers of an HTTP request by the marks of the hedge of ctx.
func MarkHTTP(h http.Header, ctx context.Context) {
	if IsHTTPHedge(h) { // otherwise AttemptsHeader is of a retry by gRPC
		h.Del(AttemptsHeader)
	}
	delete(h, httpAttempt)
	delete(h, httpInFlight)
	md, _ := metadata.FromOutgoingContext(ctx)
	if n := md[AttemptsHeader]; len(n) > 0 {
		h.Set(httpAttempt, n[0])
		if strings.HasPrefix(h.Get("Content-Type"), grpcType) {
			h.Set(AttemptsHeader, n[0])
		}
	}
	if len(md[InFlightHeader]) > 0 {
		h.Set(httpInFlight, "1")
	}
}

// HasHTTPMarks reports whether the headers have a mark, with any value.
func HasHTTPMarks(h http.Header) bool { return len(h[httpAttempt]) > 0 || len(h[httpInFlight]) > 0 }

// IsHTTPHedge reports whether the headers belong to a hedge.
func IsHTTPHedge(h http.Header) bool { return isSet(h[httpAttempt]) || isSet(h[httpInFlight]) }

// PrimaryInFlightHTTP is PrimaryInFlight for an HTTP request.
func PrimaryInFlightHTTP(h http.Header) bool { return isSet(h[httpAttempt]) && isSet(h[httpInFlight]) }

// ServesHTTPHedge returns a context for calls on behalf of an HTTP hedge: race.MadeForHedge reports
// true.
func ServesHTTPHedge(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return metadata.NewIncomingContext(ctx, metadata.Join(md, metadata.Pairs(AttemptsHeader, "1")))
}

// InHTTP reports whether the body of an HTTP response may have the status of a call: of gRPC,
// gRPC-Web or a stream of Connect (the HTTP status is 200), or of Connect's unary calls, if they
// fail.
func InHTTP(req *http.Request, res *http.Response) bool {
	mediaType := res.Header.Get("Content-Type")
	if res.StatusCode == http.StatusOK {
		return strings.HasPrefix(mediaType, grpcType) || strings.HasPrefix(mediaType, connectType)
	}
	return res.StatusCode >= 400 && strings.HasPrefix(mediaType, "application/json") &&
		(req.Header.Get("Connect-Protocol-Version") != "" || strings.Contains(req.URL.RawQuery, "connect=v1"))
}

const grpcType, connectType = "application/grpc", "application/connect+"

// StatusInHTTP returns the status in a response that InHTTP selects, and the server's pushback.
// body is the body so far, all of it if ended is set. A message that comes first means OK. known is
// false if the status needs more of the body. If a failed unary call of Connect has no status in
// its body, it is OK: the HTTP status counts.
func StatusInHTTP(res *http.Response, body []byte, ended bool) (pushback metadata.MD, err error, known bool) {
	mediaType := res.Header.Get("Content-Type")
	last := byte(0) // the bit of a frame's first byte that marks the frame with the status
	switch {
	case res.StatusCode != http.StatusOK:
		err := connectError(body)
		return pushbackOf(res.Header), err, err != nil || ended
	case res.Header.Get("Grpc-Status") != "":
		return fromHeader(res.Header)
	case strings.HasPrefix(mediaType, connectType):
		last = 0b10
	case strings.HasPrefix(mediaType, grpcType+"-web"):
		last = 0x80
	}
	if strings.HasPrefix(mediaType, grpcType+"-web-text") {
		text := body[:len(body)/4*4]
		body = make([]byte, len(text))
		n, _ := base64.StdEncoding.Decode(body, text) // up to padding, after which another frame may begin
		body = body[:n]
	}
	const prefix = 5 // flags and length
	switch {
	case len(body) == 0 && ended:
		return fromHeader(res.Trailer)
	case len(body) > 0 && body[0]&last == 0:
		return nil, nil, true
	case len(body) < prefix || uint32(len(body)-prefix) < binary.BigEndian.Uint32(body[1:]):
		return nil, status.Error(codes.Internal, "truncated response"), ended
	}
	frame := body[prefix:][:binary.BigEndian.Uint32(body[1:])]
	if body[0]&1 != 0 { // compressed; another compression than gzip leaves the status unknown
		if z, err := gzip.NewReader(bytes.NewReader(frame)); err == nil {
			frame, _ = io.ReadAll(io.LimitReader(z, 1<<16))
		}
	}
	if last == 0x80 {
		trailer := textproto.NewReader(bufio.NewReader(strings.NewReader(string(frame) + "\r\n")))
		fields, _ := trailer.ReadMIMEHeader()
		return fromHeader(http.Header(fields))
	}
	var end struct {
		Error    json.RawMessage
		Metadata map[string][]string
	}
	if err := json.Unmarshal(frame, &end); err != nil {
		return nil, status.Error(codes.Unknown, err.Error()), true
	} else if len(end.Error) == 0 || string(end.Error) == "null" {
		return nil, nil, true
	}
	h := http.Header{}
	for key, values := range end.Metadata {
		h[textproto.CanonicalMIMEHeaderKey(key)] = values
	}
	return pushbackOf(h), cmp.Or(connectError(end.Error), status.Error(codes.Unknown, "no code")), true
}

// fromHeader returns the status in headers or trailers of gRPC. Without one, it is Unknown.
func fromHeader(h http.Header) (pushback metadata.MD, err error, known bool) {
	code, err := strconv.ParseUint(h.Get("Grpc-Status"), 10, 32)
	if err != nil {
		code = uint64(codes.Unknown)
	}
	return pushbackOf(h), status.Error(codes.Code(code), h.Get("Grpc-Message")), true
}

// pushbackOf returns the pushback in headers or trailers; nil for none. The trailers of Connect's
// unary calls are headers.
func pushbackOf(h http.Header) metadata.MD {
	for _, key := range []string{PushbackTrailer, "Trailer-" + PushbackTrailer} {
		if values := h.Values(key); len(values) > 0 {
			return metadata.MD{PushbackTrailer: values}
		}
	}
	return nil
}

// connectError returns the status in the JSON of an error of Connect, or nil.
func connectError(js []byte) error {
	var e struct{ Code, Message string }
	if json.Unmarshal(js, &e) != nil || e.Code == "" {
		return nil
	}
	code := codes.Unknown // "canceled" too, which gRPC spells otherwise
	_ = code.UnmarshalJSON([]byte(strconv.Quote(strings.ToUpper(e.Code))))
	return status.Error(code, e.Message)
}

// RetryAfter returns the Retry-After header, in seconds or as a date, as gRPC's trailer.
// A wait that is over holds nothing back: clocks differ, and in gRPC's trailer it would mean that
// the server has turned the attempt away.
func RetryAfter(h http.Header) metadata.MD {
	value := h.Get("Retry-After")
	wait := time.Duration(0)
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		wait = time.Duration(min(seconds, math.MaxInt32)) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = time.Until(at)
	}
	if wait <= 0 {
		return nil
	}
	ms := min(max(wait.Milliseconds(), 1), math.MaxInt32)
	return metadata.Pairs(PushbackTrailer, strconv.FormatInt(ms, 10))
}
