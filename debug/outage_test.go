package debug_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestHandler_Outage has every call fail for four of nine minutes, with a reader only at the
// end. The page begins with that, the latency is unknown, and the curve has a gap. Three minutes later
// only the curve shows it.
func TestHandler_Outage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		handler := debug.Handler(s)
		phase := func(minutes int, err error) {
			for range minutes * 600 {
				_, _ = hedge.Do(t.Context(), s, "shop", "/shop.Items/Get", func(context.Context) (int, error) {
					time.Sleep(5 * ms)
					return 0, err
				})
				time.Sleep(95 * ms)
			}
		}
		phase(2, nil)
		phase(4, status.Error(codes.Unavailable, "down"))
		says(t, get(handler, "", "").Body.String(), "failed lately: ", "    All calls of the last ", "failed calls, last")
		html := get(handler, "", "text/html").Body.String()
		says(t, html, `class="alarm"><dt>failed lately`, `class="sentence down">All calls`, "Failed calls, last ten minutes")
		var parsed struct {
			Recent  struct{ Calls, Failed int64 }
			Methods []struct{ History []registry.Sample }
		}
		body := get(handler, "?format=json", "").Body.Bytes()
		if err := json.Unmarshal(body, &parsed); err != nil || len(parsed.Methods) != 1 {
			t.Fatal(err, parsed)
		}
		if parsed.Recent.Failed < 600 || parsed.Recent.Failed < parsed.Recent.Calls {
			t.Errorf("%+v, want only failed calls", parsed.Recent)
		}
		newest := parsed.Methods[0].History[len(parsed.Methods[0].History)-1]
		if newest.Tail != 0 || newest.Unhedged != 0 || newest.Failed != 1 {
			t.Errorf("the newest sample is %+v, want no latency, and only failures", newest)
		}
		phase(3, nil)
		text := get(handler, "", "").Body.String()
		if says(t, text, "failed lately: 0 of", "p99 of callers"); strings.Contains(text, "All calls") {
			t.Errorf("the outage is over, and the page is\n%s", text)
		}
		html = get(handler, "", "text/html").Body.String()
		if curves := strings.Count(html, `<polyline class="with"`); curves != 3 { // two of p99, and the extra load
			t.Errorf("%d parts of curves, want a gap in the p99 of\n%s", curves, html)
		}
	})
}
