package hedgehttp_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

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
