package hedgehttp_test

import (
	"cmp"
	"net/http"
	"strings"
	"testing"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	_ "github.com/grpchedge/hedge/proto" // the descriptor of its service
)

// TestTransport_Names checks the method under which a request is learned, and whether it is hedged.
func TestTransport_Names(t *testing.T) {
	byName := hedgehttp.WithName(func(r *http.Request) string {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			return "/v1/Complete"
		}
		return ""
	})
	all, idempotent, byKey := hedge.WithAllMethods(), hedge.WithIdempotentOnly(), hedgehttp.WithIdempotencyKey()
	methods, readOnly := hedge.WithMethods, hedge.WithReadOnlyMethods
	for _, tc := range []struct {
		request string // method and path
		key     bool   // it has an Idempotency-Key
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
		{request: "GET /users/17", opt: readOnly("/users/[0-9]*"), name: "/users/17"},
		{request: "POST /users/17", opt: all, name: "POST", once: true},
		{request: "POST /users/17", opt: idempotent, name: "POST", once: true},
		{request: "DELETE /users/17", opt: all, name: "DELETE", once: true},
		{request: "POST /users/17", opt: methods("/users/*"), name: "/users/*"},
		{request: "POST /pkg.Svc/Get", opt: readOnly("/pkg.Svc/Get*"), name: "/pkg.Svc/Get"},
		{request: "POST /pkg.Svc/Put", opt: all, name: "/pkg.Svc/Put", once: true},
		{request: "POST /twirp/pkg.Svc/Get", opt: readOnly("/pkg.Svc/Get"), name: "/pkg.Svc/Get"},
		{request: "GET /v1.2/17", opt: all, name: "GET"},
		{request: "POST /v1/chat/completions", opt: readOnly("/v1/Complete"), name: "/v1/Complete"},
		{request: "POST /hedgetest.TestService/UnaryIdempotent", opt: idempotent,
			name: "/hedgetest.TestService/UnaryIdempotent"},
		{request: "POST /hedgetest.TestService/Unary", opt: idempotent, name: "/hedgetest.TestService/Unary", once: true},
		{request: "POST /not.Linked/Get", opt: idempotent, name: "/not.Linked/Get", once: true},

		{request: "POST /users/17", key: true, by: byKey, opt: all, name: "POST"},
		{request: "POST /users/17", key: true, by: byKey, opt: idempotent, name: "POST"},
		{request: "POST /users/17", key: true, by: byKey, opt: methods("/users/*"), name: "/users/*"},
		{request: "POST /users/17", by: byKey, opt: all, name: "POST", once: true},
		{request: "POST /users/17", key: true, opt: all, name: "POST", once: true},
		{request: "DELETE /users/17", key: true, opt: idempotent, name: "DELETE", once: true},
		{request: "POST /users/17", key: true, opt: methods("/users/*"), name: "/users/*"},
		{request: "CONNECT /", key: true, by: byKey, opt: all, name: "CONNECT", once: true},
	} {
		hedgetest.Run(t, tc.request, func(t *testing.T) {
			s := hedgetest.New(t, tc.opt, hedge.WithWarmup(20, 10*ms), hedge.WithBudgetPercent(400))
			rt := hedgehttp.Transport(s, &fake{script: script{{after: 50 * ms, status: 200}, {status: 200}}}, byName, tc.by)
			method, path, _ := strings.Cut(tc.request, " ")
			req, _ := http.NewRequest(cmp.Or(method, "GET"), "https://host:8443"+path, nil)
			req.Method = method
			if tc.key {
				req.Header.Set("Idempotency-Key", "key")
			}
			outcome(t, rt, req)
			m := s.Methods()[0]
			if m.Target != "https://host:8443" || m.Method != tc.name || (m.Hedged == 0) != tc.once {
				t.Errorf("%q %q, hedged %d; want %q, hedged %v", m.Target, m.Method, m.Hedged, tc.name, !tc.once)
			}
			if c := m.Counts; tc.once && c.NotSelected+c.NotReplayable != 1 {
				t.Errorf("not hedged, and not counted: %+v", c)
			}
		})
	}
}
