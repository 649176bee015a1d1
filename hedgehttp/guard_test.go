package hedgehttp_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// TestGuard_StatusInsideA200: hedges that fail with RESOURCE_EXHAUSTED inside a 200 are held back.
func TestGuard_StatusInsideA200(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want stats.GuardReason
	}{
		"resource_exhausted": {`{"error":{"code":"resource_exhausted"}}`, stats.GuardExhausted},
		"unavailable":        {`{"error":{"code":"unavailable"}}`, stats.GuardNone},
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithReadOnlyMethods("/pkg.Svc/Get"), hedge.WithMaxHedges(1))
			good := serves(string(frame(0, []byte("message"))), "Content-Type", "application/connect+json")
			bad := serves(string(frame(2, []byte(tc.body))), "Content-Type", "application/connect+json")
			var attempts []http.HandlerFunc
			for range 40 {
				attempts = append(attempts, after(20*ms, good), after(ms, bad))
			}
			rt := hedgehttp.Transport(s, inMemory(t, true, attempts...))
			reason := stats.GuardNone
			for range 20 {
				req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://host/pkg.Svc/Get", nil)
				connectHeader(req)
				if res, err := rt.RoundTrip(req); err == nil {
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				time.Sleep(time.Second)
				if g := s.Methods()[0].Guard.Reason; g != stats.GuardNone {
					reason = g
					break
				}
			}
			if reason != tc.want {
				t.Errorf("the guard's reason is %q after %d hedges, want %q", reason, s.Stats().Hedges, tc.want)
			}
		})
	}
}
