package hedgehttp_test

import (
	"cmp"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	_ "github.com/grpchedge/hedge/proto" // the descriptor of its service
	"github.com/grpchedge/hedge/stats"
)

func TestTransport_Names(t *testing.T) {
	byName := hedgehttp.WithName(func(r *http.Request) string {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			return "/v1/Complete"
		}
		return ""
	})
	all, idempotent, byKey := hedge.WithAllMethods(), hedge.WithIdempotentOnly(), hedgehttp.WithIdempotencyKey()
	methods, readOnly := hedge.WithMethods, hedge.WithReadOnlyMethods
	const (
		grpc, web = "Content-Type: application/grpc+proto", "Content-Type: application/grpc-web+proto; charset=utf-8"
		connect   = "Connect-Protocol-Version: 1"
	)
	for _, tc := range []struct {
		request string // method and path
		header  string // one of it
		mux     string // its Pattern, by a server's mux
		by      hedgehttp.Option
		opt     hedge.Option
		name    string
		once    bool // it is not hedged
	}{
		{request: "GET /users/17", opt: all, name: "GET"},
		{request: " /users/17", opt: all, name: "GET"},
		{request: "QUERY /users", opt: idempotent, name: "QUERY"},
		{request: "HEAD /", opt: methods("/pkg.Svc/Get"), name: "HEAD", once: true},
		{request: "GET /users/17", opt: readOnly("/users/*"), name: "/users/*"},
		{request: "GET /users/17", opt: readOnly("/users/[0-9]*"), name: "/users/[0-9]*"},
		{request: "POST /users/17", opt: all, name: "POST", once: true},
		{request: "POST /users/17", opt: idempotent, name: "POST", once: true},
		{request: "DELETE /users/17", opt: all, name: "DELETE", once: true},
		{request: "MINE /users/17", opt: all, name: "other", once: true},
		{request: "POST /users/17", opt: methods("/users/*"), name: "/users/*"},
		{request: "POST /pkg.Svc/Get", opt: readOnly("/pkg.Svc/Get*"), name: "/pkg.Svc/Get*"},

		{request: "POST /pkg.Svc/Get", header: grpc, opt: readOnly("/pkg.Svc/Get*"), name: "/pkg.Svc/Get"},
		{request: "POST /pkg.Svc/Put", header: web, opt: all, name: "/pkg.Svc/Put", once: true},
		{request: "POST /pkg.Svc/Put", header: "Content-Type: application/grpc-web-text", opt: all, name: "/pkg.Svc/Put",
			once: true},
		{request: "POST /twirp/pkg.Svc/Get", header: "Twirp-Version: v8.1.3", opt: readOnly("/pkg.Svc/Get"),
			name: "/pkg.Svc/Get"},
		{request: "POST /twirp/pkg.Svc/Get", header: "Content-Type: application/protobuf", opt: readOnly("/pkg.Svc/Get"),
			name: "/pkg.Svc/Get"},
		{request: "POST /pkg.Svc/Get", header: "Content-Type: Application/Connect+JSON", opt: all, name: "/pkg.Svc/Get",
			once: true},
		{request: "POST /pkg.Svc/Get", header: connect, opt: readOnly("POST /pkg.Svc/{any}"), name: "/pkg.Svc/Get"},
		{request: "GET /pkg.Svc/Get?connect=v1&encoding=json&message=e30", opt: all, name: "/pkg.Svc/Get"},
		{request: "POST /hedgetest.TestService/UnaryIdempotent", header: connect, opt: idempotent,
			name: "/hedgetest.TestService/UnaryIdempotent"},
		{request: "POST /hedgetest.TestService/Unary", header: connect, opt: idempotent,
			name: "/hedgetest.TestService/Unary", once: true},
		{request: "POST /not.Linked/Get", header: connect, opt: idempotent, name: "/not.Linked/Get", once: true},
		{request: "GET /v1.2/17", header: connect, opt: all, name: "GET"},
		{request: "POST /reset/acme.Portal/tok_9f8e7d", opt: all, name: "POST", once: true},
		{request: "GET /packages/Acme.Json7/versions", opt: all, name: "GET"},
		{request: "POST /hedgetest.TestService/UnaryIdempotent", header: "Content-Type: application/json", opt: idempotent,
			name: "POST", once: true},

		{request: "GET /users/17/orders", opt: readOnly("GET /users/{id}/orders"), name: "GET /users/{id}/orders"},
		{request: "HEAD /users/17/orders", opt: readOnly("GET /users/{id}/orders"), name: "GET /users/{id}/orders"},
		{request: "DELETE /users/17/orders", opt: readOnly("GET /users/{id}/orders"), name: "DELETE", once: true},
		{request: "POST /index/_search", opt: readOnly("/{index}/_search"), name: "/{index}/_search"},
		{request: "POST /_search", opt: readOnly("/_search"), name: "/_search"},
		{request: "POST /v2/chat/completions", opt: methods("POST /v2/{rest...}"), name: "POST /v2/{rest...}"},
		{request: "POST /v2/chat", opt: methods("POST host/v2/{x}", "/v2/"), name: "POST host/v2/{x}"},
		{request: "POST /v2/chat", opt: methods("POST other/v2/{x}", "/v2/{$}"), name: "POST", once: true},

		{request: "POST /v1/chat/completions", opt: readOnly("/v1/Complete"), name: "/v1/Complete"},
		{request: "POST /v1/chat/completions", opt: readOnly("POST /v1/chat/"), name: "/v1/Complete"},
		{request: "POST /v1/pkg.Svc/Get", header: connect, opt: all, name: "/v1/Complete", once: true},

		{request: "GET /users/17", mux: "GET /users/{id}", opt: all, name: "GET /users/{id}"},
		{request: "POST /users/17", mux: "/users/{id}", opt: readOnly("/users/{user}"), name: "/users/{id}"},
		{request: "GET /users/17", mux: "GET /users/{id}", opt: readOnly("GET /users/"), name: "GET /users/{id}"},
		{request: "GET /users/17", mux: "/", opt: all, name: "GET"},
		{request: "GET /users/17", mux: "/users/", opt: readOnly("GET /users/{id}"), name: "GET /users/{id}"},
		{request: "POST /internal/17", mux: "/users/{id}", opt: readOnly("POST /users/{id}"), name: "/users/{id}",
			once: true},
		{request: "POST /internal/17", mux: "POST /users/{id}", opt: readOnly("POST /users/{id}"), name: "POST /users/{id}"},

		{request: "POST /users/17", header: "Idempotency-Key: key", by: byKey, opt: all, name: "POST"},
		{request: "POST /users/17", header: "Idempotency-Key: key", by: byKey, opt: idempotent, name: "POST"},
		{request: "POST /users/17", header: "Idempotency-Key: key", by: byKey, opt: methods("/users/*"), name: "/users/*"},
		{request: "POST /users/17", by: byKey, opt: all, name: "POST", once: true},
		{request: "POST /users/17", header: "Idempotency-Key: key", opt: all, name: "POST", once: true},
		{request: "DELETE /users/17", header: "Idempotency-Key: key", opt: idempotent, name: "DELETE", once: true},
		{request: "POST /users/17", header: "Idempotency-Key: key", opt: methods("/users/*"), name: "/users/*"},
		{request: "CONNECT /", header: "Idempotency-Key: key", by: byKey, opt: all, name: "CONNECT", once: true},
	} {
		hedgetest.Run(t, tc.request, func(t *testing.T) {
			s := hedgetest.New(t, tc.opt, hedge.WithWarmup(20, 10*ms), hedge.WithBudgetPercent(400))
			rt := hedgehttp.Transport(s, &fake{script: script{{after: 50 * ms, status: 200}, {status: 200}}}, byName, tc.by)
			method, path, _ := strings.Cut(tc.request, " ")
			req, _ := http.NewRequest(cmp.Or(method, "GET"), "https://host:8443"+path, nil)
			req.Method = method
			req.Pattern = tc.mux
			if key, value, ok := strings.Cut(tc.header, ": "); ok {
				req.Header.Set(key, value)
			}
			outcome(t, rt, req)
			m := s.Methods()[0]
			if m.Target != "https://host:8443" || m.Method != tc.name || (m.Hedged == 0) != tc.once {
				t.Errorf("learned for %q as %q, hedged %d; want %q, hedged %v", m.Target, m.Method, m.Hedged, tc.name, !tc.once)
			}
			if c := m.Counts; tc.once && c.NotSelected+c.NotReplayable != 1 {
				t.Errorf("not hedged, and not counted: %+v", c)
			}
		})
	}
}

// TestTransport_AllMatchingPatterns: the options of all matching patterns apply, and of two that set the
// same option, the more specific one. The wide pattern sets the delay, the middle one the number of
// hedges, and the narrow one a shorter delay.
func TestTransport_AllMatchingPatterns(t *testing.T) {
	for path, want := range map[string]struct {
		hedges int64
		first  time.Duration
	}{
		"/other":        {2, 20 * ms},
		"/users/7":      {1, 20 * ms},
		"/users/7/post": {1, 10 * ms},
	} {
		hedgetest.Run(t, path, func(t *testing.T) {
			var sent []time.Duration
			began := time.Now()
			s := hedgetest.New(t, hedge.WithReadOnlyMethods("/"), hedge.WithBudgetPercent(400),
				hedge.WithMethodOptions("/", hedge.WithTrigger(hedge.Fixed(20*ms))),
				hedge.WithMethodOptions("/users/", hedge.WithMaxHedges(1)),
				hedge.WithMethodOptions("/users/{id}/post", hedge.WithTrigger(hedge.Fixed(10*ms))),
				hedge.WithTrace(&hedge.Trace{HedgeSent: func(stats.HedgeSent) { sent = append(sent, time.Since(began)) }}))
			base := &fake{script: script{is(200, 100*ms), is(200, time.Hour), is(200, time.Hour)}}
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://host"+path, nil)
			if got := outcome(t, hedgehttp.Transport(s, base), req); got[:3] != "200" {
				t.Fatal(got)
			}
			synctest.Wait()
			if s.Stats().Hedges != want.hedges || len(sent) == 0 || sent[0] != want.first {
				t.Errorf("hedges after %v, want %d, the first after %v", sent, want.hedges, want.first)
			}
		})
	}
}
