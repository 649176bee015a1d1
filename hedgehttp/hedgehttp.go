// Package hedgehttp hedges HTTP requests: [Transport] is an [http.RoundTripper] around another one.
//
//	s, err := hedge.New(hedge.WithAllMethods())
//	if err != nil {
//		return err
//	}
//	client := &http.Client{Transport: hedgehttp.Transport(s, http.DefaultTransport)}
//
// GET, HEAD, OPTIONS, TRACE and QUERY requests, and requests with an Idempotency-Key, are then
// hedged as gRPC calls are, by the same scheduler and budget. A response that streams, such as
// server-sent events, has answered with the first byte of its body.
package hedgehttp

import (
	"net/http"
	"path"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
)

// Transport returns an [http.RoundTripper] that sends requests by base, and hedges them as s
// decides. A nil base is [http.DefaultTransport]. If s is nil, Transport returns base.
// CloseIdleConnections is passed on.
//
// A request may be sent twice if the options of s select it and HTTP allows it: a GET, HEAD,
// OPTIONS, TRACE or QUERY request, and one with an Idempotency-Key header. [hedge.WithAllMethods]
// and [hedge.WithIdempotentOnly] select these. Any other request is hedged only if its path or its
// name matches [hedge.WithMethods] or [hedge.WithReadOnlyMethods], or, with WithIdempotentOnly, its
// path is a gRPC method whose linked descriptor allows it. Requests with an Upgrade or Expect
// header are sent once.
//
// The target is the scheme and host of the URL. A request is learned under a name, its method: the
// full method if its path ends in one, such as /pkg.Svc/Get; the pattern of WithMethods or
// WithReadOnlyMethods that its path matches; what the function of [WithName] returns; or its HTTP
// method.
//
// A body of up to 1 MiB is read before the request is sent, if the request has GetBody or a
// ContentLength. A request with another body is sent once.
//
// A transport error, and the statuses 429, 500, 502, 503 and 504, count as gRPC's Unavailable,
// ResourceExhausted, Internal, Unavailable, Unavailable and DeadlineExceeded, which are non-fatal
// by default: see [hedge.WithNonFatalCodes]. Any other response is an answer. A Retry-After header
// with one of these statuses holds hedges back. The function of [hedge.WithAcceptable] gets the
// *[http.Response], and must not read its body. The functions of [hedge.WithClass] and
// [hedge.WithCost] get the *[http.Request].
//
// The primary runs on the caller's goroutine, and each hedge on a goroutine of its own. The
// response comes from one attempt. Its context ends when its body has been read or closed, or with
// the context of the request. Losers are canceled at once: over HTTP/2 their streams are reset, and
// over HTTP/1.1 their connections are closed. Hooks of [net/http/httptrace] see the primary.
func Transport(s *hedge.Scheduler, base http.RoundTripper, opts ...Option) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	r := registry.Of(s)
	if r == nil {
		return base
	}
	t := &transport{registry: r, base: base, hedges: base}
	for _, opt := range opts {
		if opt != nil {
			opt(t)
		}
	}
	return t
}

// Option is an option of [Transport]. A nil option is ignored.
type Option func(*transport)

// WithName gives names to requests whose paths are no full methods and match no pattern, so that
// requests of different latency are learned apart. of must return few different names: no
// identifiers out of a path. A name such as "/shop/Search" can be selected by [hedge.WithMethods]
// and configured by [hedge.WithMethodOptions]. An empty name means the HTTP method. of must be safe
// for concurrent use, and must not change the request. Nil, the default, names requests by their
// HTTP methods.
func WithName(of func(*http.Request) string) Option {
	return func(t *transport) { t.name = of }
}

// WithFirstByte names further responses that answer with the first byte of their body, and not with
// their headers. Responses of the types text/event-stream, application/x-ndjson and
// application/connect+... always do. RoundTrip returns such a response of a request that can be
// hedged when it has the first byte. streams must be safe for concurrent use, and must not read the
// body. Nil, the default, names none.
func WithFirstByte(streams func(*http.Response) bool) Option {
	return func(t *transport) { t.firstByte = streams }
}

// WithHedgeTransport sends hedges by rt. Over one HTTP/2 connection a hedge waits behind the lost
// packet that delays its primary; with a transport of its own it has another connection. Nil, the
// default, sends hedges by the base transport.
func WithHedgeTransport(rt http.RoundTripper) Option {
	return func(t *transport) {
		if t.hedges = rt; rt == nil {
			t.hedges = t.base
		}
	}
}

type transport struct {
	registry     *registry.Registry
	base, hedges http.RoundTripper
	name         func(*http.Request) string // nil: by the HTTP method
	firstByte    func(*http.Response) bool  // nil: none
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (t *transport) CloseIdleConnections() {
	for _, rt := range []http.RoundTripper{t.base, t.hedges} {
		if rt, ok := rt.(interface{ CloseIdleConnections() }); ok {
			rt.CloseIdleConnections()
		}
	}
}

// nameOf returns the name under which a request is learned.
func (t *transport) nameOf(req *http.Request) string {
	if name := fullMethod(req.URL.Path); name != "" {
		return name
	}
	c := t.registry.Config()
	for _, patterns := range [][]string{c.ReadOnly, c.Methods} {
		for _, p := range patterns {
			if ok, _ := path.Match(p, req.URL.Path); ok {
				if itself, _ := path.Match(p, p); itself {
					return p
				}
				return req.URL.Path // a pattern with brackets does not match itself
			}
		}
	}
	if t.name != nil {
		if name := t.name(req); name != "" {
			return name
		}
	}
	if req.Method == "" {
		return http.MethodGet
	}
	return req.Method
}

// fullMethod returns the full method in which a path ends; "" if it does not. A service without a
// package is not recognized, as /users/anna would look like a method.
func fullMethod(path string) string {
	last := strings.LastIndexByte(path, '/')
	slash := strings.LastIndexByte(path[:max(last, 0)], '/')
	if slash < 0 {
		return ""
	}
	service, method := protoreflect.FullName(path[slash+1:last]), protoreflect.Name(path[last+1:])
	if !service.IsValid() || !method.IsValid() || service.Parent() == "" {
		return ""
	}
	if first := service.Name()[0]; first < 'A' || first > 'Z' {
		return ""
	}
	return path[slash:]
}

// The ways in which HTTP may allow a request to be sent twice.
var (
	safe  = &call.HTTPOption{Safe: true, Idempotent: true}
	keyed = &call.HTTPOption{Idempotent: true}
	other = &call.HTTPOption{}
)

func kindOf(req *http.Request) *call.HTTPOption {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "QUERY":
		return safe
	}
	if req.Header.Get("Idempotency-Key") != "" {
		return keyed
	}
	return other
}
