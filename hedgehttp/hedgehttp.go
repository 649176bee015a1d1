// Package hedgehttp hedges HTTP requests with an [http.RoundTripper] around another one: see
// [Transport].
//
//	s, err := hedge.New(hedge.WithAllMethods())
//	if err != nil {
//		return err
//	}
//	client := &http.Client{Transport: hedgehttp.Transport(s, http.DefaultTransport)}
//
// With these options it hedges GET, HEAD, OPTIONS, TRACE and QUERY requests. The same scheduler can
// hedge gRPC calls. A streamed response, such as server-sent events, answers with the first byte of
// its body.
package hedgehttp

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/settings"
)

// Transport returns an [http.RoundTripper] that sends requests through base and hedges them as s
// decides. A nil base is [http.DefaultTransport]. If s is nil, Transport returns base. The
// RoundTripper is safe for concurrent use if base is, and passes CloseIdleConnections on.
//
// A request may be sent twice if the options of s select it and HTTP allows it: a GET, HEAD,
// OPTIONS, TRACE or QUERY request. [hedge.WithAllMethods] and [hedge.WithIdempotentOnly] select
// these, and with [WithIdempotencyKey] also requests with this key. Any other request, such as a
// read by POST, needs a pattern of [hedge.WithMethods] or [hedge.WithReadOnlyMethods] that matches
// the request or its name, or, with WithIdempotentOnly, the name of a gRPC method whose linked
// descriptor allows it. Requests with an Upgrade or Expect header, CONNECT requests, and requests with
// a body of more than 1 MiB, or of unknown length without GetBody, are sent once.
//
// The target is the scheme and host of the URL. The latency of a request, which begins when its body
// has been read, is learned under a name: the result of the function of [WithName], the full method of
// a request of gRPC, gRPC-Web, Connect or Twirp, the pattern that matches the request, or its HTTP
// method. docs/http.md has the rules.
//
// Transport errors and statuses of 400 or more are failures: another attempt in flight decides.
// Exceptions: 404 and 410 end the race; from a hedge, only if the request only reads. A primary's 400
// ends it too. The wait of a failed primary for its hedges is bounded. docs/http.md has the table, with
// the codes for [hedge.WithNonFatalCodes], and describes Retry-After and statuses of gRPC and Connect
// inside a response. The function of [hedge.WithAcceptable] gets the *[http.Response], or nil without
// one, and must not read its body. The function of [hedge.WithClass] gets the *[http.Request].
//
// The primary runs on the caller's goroutine, and each hedge on its own. The response comes from
// one attempt; if all fail, from the primary. The context of that attempt ends when the body has been
// read or closed, or with the context of the request. Losers are canceled at once: over HTTP/2 their
// streams are reset, and over HTTP/1.1 their connections are closed. Hooks of [net/http/httptrace] see
// the primary.
func Transport(s *hedge.Scheduler, base http.RoundTripper, opts ...Option) http.RoundTripper {
	base = cmp.Or(base, http.DefaultTransport)
	r := (*registry.Registry)(s)
	if !r.Made() {
		return base
	}
	t := &transport{registry: r, base: base}
	for _, opt := range opts {
		if opt != nil {
			opt(t)
		}
	}
	t.hedges = cmp.Or(t.hedges, base)
	return t
}

// Option is an option of [Transport]. A nil option is ignored.
type Option func(*transport)

// WithName names requests with a function, so that requests of different latency are learned
// separately. of must return few different names, such as "/shop/Search", without identifiers from
// the path. Patterns of [hedge.WithMethodOptions] match this name; patterns of other options match
// the name or the request. [Transport] names the request if the name is empty or of is nil, the
// default. of must be safe for concurrent use, and must not change the request.
func WithName(of func(*http.Request) string) Option {
	return func(t *transport) { t.name = of }
}

// WithFirstByte reports which further responses answer with the first byte of their body, instead
// of their headers. Responses of the types application/grpc... and application/connect+..., and of the
// event types text/event-stream, application/x-ndjson, application/jsonl and application/json-seq do.
// Exception: a GET request of events is a subscription, which may have no event for long. It is hedged
// only if a pattern selects its path or name, or with WithFirstByte. If the request can be hedged,
// RoundTrip returns its response after the first byte. streams must be safe for concurrent use, and
// must not read the body. Nil, the default, reports none.
func WithFirstByte(streams func(*http.Response) bool) Option {
	return func(t *transport) { t.firstByte = streams }
}

// WithHedgeTransport sends hedges through rt, which must be safe for concurrent use: over one
// HTTP/2 connection a hedge waits behind the lost packet that delays its primary. Nil, the default,
// sends hedges through the base transport.
func WithHedgeTransport(rt http.RoundTripper) Option {
	return func(t *transport) { t.hedges = rt }
}

// WithHedgeRequest makes hedge n of a request by a function, n being 1 for the first: with another
// host, path, key or body, such as a request to another region or provider. r is a copy of the
// caller's request with a body of its own, which the function may change and return. Its Host is empty,
// and so follows its URL, unless the caller's differs from the URL. The request that the function
// returns is sent under the context of the attempt, and is the Request of its response. Its
// scheme and host are the destination, to which rate limits and Retry-After apply; the budget of the
// caller's target pays. If the function returns nil or an error, the call gets no more hedges, and
// counts in stats.Counts.NotReplayable.
//
// Cookies and relative redirects of the response apply to the caller's URL. Nil, the default, sends
// a copy of the caller's request. hedge must be safe for concurrent use. It is called when a hedge is
// due. If the request is not sent, its body is closed.
func WithHedgeRequest(hedge func(n int, r *http.Request) (*http.Request, error)) Option {
	return func(t *transport) { t.hedgeRequest = hedge }
}

// WithIdempotencyKey selects requests with an Idempotency-Key header as it does GET requests: HTTP
// allows them to be sent twice. By default the header selects nothing. The option is for servers
// that answer a repeated key with the response of the first request, or wait for that response.
// Many servers answer 409 while the first request is in progress, as Stripe does and the IETF draft
// recommends: the hedge fails, and none can win while its primary is slow. A reverse proxy should
// not use the option, because its clients' headers would then cause hedges.
func WithIdempotencyKey() Option {
	return func(t *transport) { t.byKey = true }
}

type transport struct {
	registry     *registry.Registry
	target       atomic.Pointer[target]
	base, hedges http.RoundTripper
	name         func(*http.Request) string                          // nil: names none
	firstByte    func(*http.Response) bool                           // nil: none
	byKey        bool                                                // an Idempotency-Key selects a request
	hedgeRequest func(n int, r *http.Request) (*http.Request, error) // nil: copies of the caller's
}

// target is the name of a target. A transport keeps its first request's: most have no other.
type target struct{ scheme, host, name string }

func (t *transport) targetOf(u *url.URL) string {
	first := t.target.Load()
	if first != nil && first.scheme == u.Scheme && first.host == u.Host {
		return first.name
	}
	name := u.Scheme + "://" + u.Host
	if first == nil {
		t.target.Store(&target{u.Scheme, u.Host, name})
	}
	return name
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (t *transport) CloseIdleConnections() {
	for _, rt := range []http.RoundTripper{t.base, t.hedges} {
		(&http.Client{Transport: rt}).CloseIdleConnections()
	}
}

// begin begins the call of the request.
func (x *exchange) begin() {
	req, ctx, may := x.caller, x.caller.Context(), &x.may
	name, selected, reads := x.registry.Config().Select(req)
	if x.name != nil {
		name = cmp.Or(x.name(req), name)
	}
	may.Selected = selected || reads
	may.Safe = reads || settings.IsSafe(req.Method)
	may.Idempotent = reads || !x.subscribes(req) && (may.Safe || x.byKey && req.Header.Get("Idempotency-Key") != "")
	if rpc.IsHTTPHedge(req.Header) { // a reverse proxy passes a hedge on
		ctx = rpc.ServesHTTPHedge(ctx)
	}
	x.call = call.Begin(x.registry, ctx, x.targetOf(req.URL), name, nil, may)
}

// subscribes reports whether a request may have no answer for long: only its name selects it.
func (t *transport) subscribes(req *http.Request) bool {
	if t.firstByte != nil || req.Method != "" && req.Method != http.MethodGet {
		return false
	}
	accept := strings.ToLower(req.Header.Get("Accept"))
	return accept != "" &&
		slices.ContainsFunc(eventTypes, func(events string) bool { return strings.Contains(accept, events) })
}
