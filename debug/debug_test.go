package debug_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

const ms = time.Millisecond

// calls makes calls one after the other, one in twenty of them ten times slower.
func calls(ctx context.Context, s *hedge.Scheduler, target, method string, n int) {
	random := rand.New(rand.NewPCG(1, 1))
	var mu sync.Mutex // attempts of a call draw at the same time
	draw := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		d := 4*ms + time.Duration(random.Int64N(int64(3*ms)))
		if random.IntN(20) == 0 {
			d *= 10
		}
		return d
	}
	for range n {
		_, _ = hedge.Do(ctx, s, target, method, func(ctx context.Context) (int, error) {
			select {
			case <-time.After(draw()):
				return 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		synctest.Wait()
	}
}

// says wants all of what to be in the text.
func says(t *testing.T, text string, what ...string) {
	t.Helper()
	for _, want := range what {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func doesNotSay(t *testing.T, text string, what ...string) {
	t.Helper()
	for _, not := range what {
		if strings.Contains(text, not) {
			t.Errorf("%q in\n%s", not, text)
		}
	}
}

func get(h http.Handler, query, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/debug/hedge/"+query, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestHandler_Formats asks for a method in each format, after eleven minutes of calls.
func TestHandler_Formats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		h := debug.Handler(s)
		for range 110 {
			calls(t.Context(), s, "dns:///shop:443", "/shop.Items/Get", 80)
			time.Sleep(7 * time.Second)
		}
		row := s.Methods()[0]

		var parsed struct {
			Totals  stats.Counts
			Methods []struct {
				Sentence string
				Stats    stats.Method
				History  []struct {
					At             time.Time
					Tail, Unhedged time.Duration
					Load           float64
				}
			}
		}
		w := get(h, "", "application/json")
		if err := json.Unmarshal(w.Body.Bytes(), &parsed); err != nil ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Fatal(err, w.Header())
		}
		if parsed.Totals != s.Stats() || len(parsed.Methods) != 1 || parsed.Methods[0].Stats.Counts != row.Counts ||
			parsed.Methods[0].Stats.Delay != row.Delay {
			t.Errorf("%+v", parsed)
		}
		m := parsed.Methods[0]
		if len(m.History) < 30 || len(m.History) > 61 || time.Since(m.History[0].At) > 10*time.Minute+20*time.Second {
			t.Errorf("%d samples, the first %v ago", len(m.History), time.Since(m.History[0].At))
		}
		var sum float64
		for _, sample := range m.History[1:] {
			sum += sample.Load
			if sample.Tail == 0 || sample.Unhedged == 0 {
				t.Errorf("%+v", sample)
			}
		}
		if mean := sum / float64(len(m.History)-1); mean < 0.001 || mean > 0.11 {
			t.Errorf("the extra load is %v", mean)
		}
		text := get(h, "", "*/*").Body.String() // as curl asks
		says(t, text, []string{"\ndns:///shop:443\n\n  /shop.Items/Get\n    " + m.Sentence + "\n",
			"calls ", "8,800"}...)
		html := get(h, "", "text/html,application/xhtml+xml,*/*;q=0.8").Body.String()
		if strings.Count(html, "<polyline") < 4 || !strings.Contains(html, m.Sentence) ||
			strings.Contains(html, "http://") || strings.Contains(html, "https://") {
			t.Errorf("%d curves in\n%s", strings.Count(html, "<polyline"), html)
		}
		part := get(h, "?part=main&format=html", "").Body.String()
		if strings.Contains(part, "<html") || !strings.Contains(part, m.Sentence) {
			t.Errorf("the part is\n%s", part)
		}
	})
}

// TestHandler_NamesAreEscaped has a method and a target that would do harm.
func TestHandler_NamesAreEscaped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		calls(t.Context(), s, `"><img src=x onerror=alert(1)>`, "<script>alert(1)</script>\x1b[2J", 1)
		h := debug.Handler(s)
		html := get(h, "?filter=%3Cscript%3E", "text/html").Body.String()
		if strings.Contains(html, "<script>alert") || strings.Contains(html, "<img") ||
			!strings.Contains(html, "&lt;script&gt;") {
			t.Error(html)
		}
		if text := get(h, "", "").Body.String(); strings.Contains(text, "\x1b") || !strings.Contains(text, `\x1b[2J`) {
			t.Errorf("%q", text)
		}
		if w := get(h, "?format=json", ""); !json.Valid(w.Body.Bytes()) ||
			strings.Contains(w.Body.String(), "<script>") {
			t.Error(w.Body)
		}
	})
}

// TestHandler_Requests are requests that are in order, and others.
func TestHandler_Requests(t *testing.T) {
	h := debug.Handler(hedgetest.All(t))
	for query, want := range map[string]int{
		"": 200, "?format=text": 200, "?format=xml": 400, "?limit=1": 200, "?limit=0": 400, "?limit=x": 400,
		"?asset=style.css": 200, "?asset=script.js": 200, "?asset=page.html": 404, "?asset=../debug.go": 404,
		"?asset=.": 404,
	} {
		w := get(h, query, "text/html")
		if w.Code != want || w.Header().Get("Content-Security-Policy") == "" ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%q: %d, %v", query, w.Code, w.Header())
		}
	}
	r := httptest.NewRequest("POST", "/", strings.NewReader("x"))
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	if w := get(debug.Handler(nil), "", "text/html"); w.Code != 200 ||
		!strings.Contains(w.Body.String(), "No call has been made yet") {
		t.Errorf("without a scheduler: %d %s", w.Code, w.Body)
	}
}

// TestHandler_Limit has more methods than the limit: the methods with the most calls are shown.
func TestHandler_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		for n := range 60 {
			calls(t.Context(), s, "a", fmt.Sprintf("/a/Get%02d", n), 1+n/50)
		}
		h := debug.Handler(s)
		html := get(h, "", "text/html").Body.String()
		if n := strings.Count(html, "<article"); n != 50 || !strings.Contains(html, "/a/Get59<") ||
			!strings.Contains(html, "10 more methods are not shown") {
			t.Errorf("%d rows\n%s", n, html)
		}
		if text := get(h, "?limit=5", "").Body.String(); !strings.Contains(text, "55 methods not shown") ||
			!strings.Contains(text, "/a/Get50") || strings.Contains(text, "/a/Get49") {
			t.Error(text)
		}
	})
}

// TestHandler_Sentences lets each state of a method be told in a sentence.
func TestHandler_Sentences(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options []hedge.Option
		calls   int
		before  func(*hedge.Scheduler)
		want    string
	}{
		{"learning", nil, 3, nil, "The method is being learned: 3 calls seen."},
		{"paused", nil, 30, (*hedge.Scheduler).Pause, "Hedging is paused by Pause, until Resume is called."},
		{"not selected", []hedge.Option{hedge.WithMethods("/other/*")}, 3, nil, "No option selects this method"},
		{"fixed", []hedge.Option{hedge.WithTrigger(hedge.Fixed(8 * ms))}, 30, nil,
			"A call that lasts 8 ms gets a hedge, and another 8 ms later."},
		{"at once", []hedge.Option{hedge.WithTrigger(hedge.Fixed(0))}, 30, nil,
			"All hedges of a call are due at once."},
		{"percentile", []hedge.Option{hedge.WithTrigger(hedge.Percentile(0.5))}, 300, nil, "A call that lasts 5."},
		{"no hedges", []hedge.Option{hedge.WithMaxHedges(0)}, 30, nil, "The options allow no hedges"},
		{"dry run", []hedge.Option{hedge.WithDryRun(true)}, 30, nil, "Dry run: no hedge is sent"},
		{"throttled", []hedge.Option{hedgetest.Throttle(1, 0.001)}, 1, func(s *hedge.Scheduler) {
			_, _ = hedge.Do(context.Background(), s, "a", "/a/Get",
				func(context.Context) (int, error) { return 0, fmt.Errorf("down") })
		}, "The target is throttled: 0.0 of 1 tokens are left"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				options := tc.options
				if tc.name != "not selected" {
					options = append(options, hedge.WithAllMethods())
				}
				s := hedgetest.New(t, options...)
				if tc.before != nil {
					tc.before(s)
				}
				calls(t.Context(), s, "a", "/a/Get", tc.calls)
				for _, accept := range []string{"text/html", ""} {
					if got := get(debug.Handler(s), "", accept).Body.String(); !strings.Contains(got, tc.want) {
						t.Errorf("no %q in\n%s", tc.want, got)
					}
				}
			})
		})
	}
}

// In TestHandler_NothingSelected none of a target's calls is selected, and later one is.
func TestHandler_NothingSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.New(t, hedge.WithIdempotentOnly(), hedge.WithReadOnlyMethods("/v1.Svc/Get"))
		const want = "No option selects a method of the first 100 calls: see WithReadOnlyMethods. " +
			"Methods seen: /v1.Svc/Check, /v1.Svc/Expand."
		shown := func() bool { return strings.Contains(get(debug.Handler(s), "", "").Body.String(), want) }
		calls(t.Context(), s, "spicedb", "/v1.Svc/Expand", 1)
		calls(t.Context(), s, "spicedb", "/v1.Svc/Check", 98)
		if shown() {
			t.Error("after 99 calls the page says so")
		}
		calls(t.Context(), s, "spicedb", "/v1.Svc/Check", 1)
		if !shown() {
			t.Errorf("no %q in\n%s", want, get(debug.Handler(s), "", "").Body)
		}
		calls(t.Context(), s, "spicedb", "/v1.Svc/Get", 1)
		if shown() {
			t.Error("the page says so although a call was selected")
		}
	})
}
