package rpc

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// InHTTP reports whether the body of an HTTP response may have the status of a call: of gRPC,
// gRPC-Web or a stream of Connect (the HTTP status is 200), or of Connect's unary calls, if they fail.
func InHTTP(req *http.Request, res *http.Response) bool {
	mediaType := res.Header.Get("Content-Type")
	if res.StatusCode == http.StatusOK {
		return strings.HasPrefix(mediaType, grpcType) || strings.HasPrefix(mediaType, connectType)
	}
	return res.StatusCode >= 400 && strings.HasPrefix(mediaType, "application/json") &&
		(req.Header.Get("Connect-Protocol-Version") != "" || strings.Contains(req.URL.RawQuery, "connect=v1"))
}

const grpcType, connectType = "application/grpc", "application/connect+"

// StatusInHTTP returns the status in a response that InHTTP selects, and the server's pushback. body
// is the body so far, all of it if ended is set. A message that comes first means OK. known is false
// if the status needs more of the body. If a failed unary call of Connect has no status in its body,
// it is OK: the HTTP status counts.
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
