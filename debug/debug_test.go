package debug_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

const ms = time.Millisecond

// calls makes calls one after the other, one in twenty attempts ten times slower.
func calls(t *testing.T, s *hedge.Scheduler, target, method string, n int) {
	t.Helper()
	latency := testserver.Straggler(testserver.Uniform(4*ms, 7*ms), 0.05, 10)
	for id := range n {
		_, _ = hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) {
			return hedgetest.Taking(latency.Draw(simulation.Generator(1, uint64(id), simulation.AttemptOf(ctx))))(ctx)
		})
		synctest.Wait()
	}
}

// says wants all of what to be in the text.
func says(t *testing.T, text string, what ...string) {
	t.Helper()
	for _, want := range what {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
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

// TestHandler_Formats asks for a method in each format, after eleven minutes of calls. The budget pays for
// hedges of some slow calls, and the others show the tail without hedging.
func TestHandler_Formats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithBudgetPercent(3))
		h := debug.Handler(s)
		for range 110 {
			calls(t, s, "dns:///shop:443", "/shop.Items/Get", 400)
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
		if err := json.Unmarshal(w.Body.Bytes(), &parsed); err != nil || len(parsed.Methods) != 1 ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Fatal(err, w.Header())
		}
		m := parsed.Methods[0]
		if parsed.Totals != s.Stats() || m.Stats.Counts != row.Counts || m.Stats.Delay != row.Delay {
			t.Errorf("the JSON has %+v, want the counts and the delay of Methods", parsed)
		}
		if len(m.History) < 30 || len(m.History) > 61 || time.Since(m.History[0].At) > 10*time.Minute+20*time.Second {
			t.Errorf("%d samples, the first %v ago", len(m.History), time.Since(m.History[0].At))
		}
		for _, sample := range m.History[1:] {
			if sample.Tail == 0 || sample.Load < 0 || sample.Load > 0.2 {
				t.Errorf("the history has %+v, want a tail, and a load up to .2", sample)
			}
		}
		// Without hedging p99 is 64 ms. Primaries alone, some of them cut short, show 20.
		if last := m.History[len(m.History)-1]; last.Unhedged < 50*ms || last.Unhedged > 80*ms {
			t.Errorf("the curve without hedging ends at %v, want 50 to 80 ms", last.Unhedged)
		}
		says(t, get(h, "", "*/*").Body.String(), // as curl asks
			"\ndns:///shop:443\n\n  /shop.Items/Get\n    "+m.Sentence+"\n", "calls ", "44,000")
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
		calls(t, s, `"><img src=x onerror=alert(1)>`, "<script>alert(1)</script>\x1b[2J", 1)
		h := debug.Handler(s)
		html := get(h, "?filter=%3Cscript%3E", "text/html").Body.String()
		if strings.Contains(html, "<script>alert") || strings.Contains(html, "<img") ||
			!strings.Contains(html, "&lt;script&gt;") {
			t.Errorf("a name is not escaped in\n%s", html)
		}
		if text := get(h, "", "").Body.String(); strings.Contains(text, "\x1b") || !strings.Contains(text, `\x1b[2J`) {
			t.Errorf("the text has a control character, or lacks its escaped form: %q", text)
		}
		if w := get(h, "?format=json", ""); !json.Valid(w.Body.Bytes()) ||
			strings.Contains(w.Body.String(), "<script>") {
			t.Errorf("a name is not escaped, or this is not JSON:\n%s", w.Body)
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
			t.Errorf("%q: status %d, headers %v; want %d and the security headers", query, w.Code, w.Header(), want)
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
			calls(t, s, "a", fmt.Sprintf("/a/Get%02d", n), 1+n/50)
		}
		h := debug.Handler(s)
		html := get(h, "", "text/html").Body.String()
		if n := strings.Count(html, "<article"); n != 50 || !strings.Contains(html, "/a/Get59<") ||
			!strings.Contains(html, "10 more methods are not shown") {
			t.Errorf("%d rows\n%s", n, html)
		}
		if text := get(h, "?limit=5", "").Body.String(); !strings.Contains(text, "55 methods not shown") ||
			!strings.Contains(text, "/a/Get50") || strings.Contains(text, "/a/Get49") {
			t.Errorf("want the five methods with the most calls, and a count of the others, in\n%s", text)
		}
	})
}

// TestHandler_Sentences lets each state of a method be told in a sentence.
func TestHandler_Sentences(t *testing.T) {
	down := func(s *hedge.Scheduler) {
		_, _ = hedge.Do(context.Background(), s, "a", "/a/Get", func(context.Context) (int, error) { return 0, io.EOF })
	}
	away := func(s *hedge.Scheduler) {
		fail := func(context.Context) (int, error) { return 0, status.Error(codes.Unavailable, "down") }
		_, _ = hedge.Do(context.Background(), s, "a", "/a/Get", fail, hedgetest.Taking(0))
	}
	for _, tc := range []struct {
		want    string
		calls   int
		options []hedge.Option
		first   func(*hedge.Scheduler)
	}{
		{want: "The method is being learned: 3 calls seen.", calls: 3},
		{want: "Hedging is paused by Pause, until Resume is called.", calls: 30, first: (*hedge.Scheduler).Pause},
		{want: "A call that lasts 8 ms gets a hedge, and another 8 ms later.", calls: 30,
			options: []hedge.Option{hedge.WithTrigger(hedge.Fixed(8 * ms))}},
		{want: "All hedges of a call are due at once.", calls: 30,
			options: []hedge.Option{hedge.WithTrigger(hedge.Fixed(0))}},
		{want: "A call that lasts 5.", calls: 300, options: []hedge.Option{hedge.WithTrigger(hedge.Percentile(0.5))}},
		{want: "No calls were made to this target, only hedges", calls: 30, options: []hedge.Option{hedge.WithFailover()},
			first: away},
		{want: "The target is throttled: 0.0 of 1 tokens are left", calls: 1,
			options: []hedge.Option{hedgetest.Throttle(1, 0.001)}, first: down},
	} {
		hedgetest.Run(t, tc.want, func(t *testing.T) {
			s := hedgetest.New(t, append([]hedge.Option{hedge.WithAllMethods()}, tc.options...)...)
			if tc.first != nil {
				tc.first(s)
			}
			calls(t, s, "a", "/a/Get", tc.calls)
			for _, accept := range []string{"text/html", ""} {
				says(t, get(debug.Handler(s), "", accept).Body.String(), tc.want)
			}
		})
	}
}

// TestHandler_AfterAChange has the page, Methods and its history describe the settings in force, and
// not the calls before. Once the method is hedged again, its delay is there again.
func TestHandler_AfterAChange(t *testing.T) {
	update := func(opts ...hedge.Option) func(*hedge.Scheduler) {
		return func(s *hedge.Scheduler) { _ = s.Update(append([]hedge.Option{hedge.WithAllMethods()}, opts...)...) }
	}
	resume, dry := (*hedge.Scheduler).Resume, []hedge.Option{hedge.WithDryRun(true), hedge.WithControl(1)}
	for _, tc := range []struct {
		want          string
		calls         int
		before, after func(*hedge.Scheduler)
		shows         string // of the delay and the latencies: "", "latencies" or "delay"
	}{
		{want: "The method is being learned: ", calls: 3, before: (*hedge.Scheduler).Pause, after: resume,
			shows: "latencies"},
		{want: "have the option Off or WithOff", calls: 300, before: resume, after: update(hedge.WithOff(true)),
			shows: "latencies"},
		{want: "No option selects this method", calls: 300, before: resume, after: update(hedge.WithMethods("/b/*"))},
		{want: "The method's descriptor is not linked", calls: 300, before: resume,
			after: update(hedge.WithIdempotentOnly())},
		{want: "The options allow no hedges", calls: 300, before: resume, after: update(hedge.WithBudgetPercent(0)),
			shows: "latencies"},
		{want: "The options allow no hedges", calls: 300, before: resume,
			after: update(hedge.WithTargetOptions("a", hedge.WithBudgetPercent(0))), shows: "latencies"},
		{want: "The options allow no hedges", calls: 300, before: resume, after: update(hedge.WithMaxHedges(0)),
			shows: "latencies"},
		{want: "The options allow no hedges", calls: 300, before: resume,
			after: update(hedge.WithMaxHedges(0), hedge.WithTrigger(hedge.Fixed(8*ms))), shows: "latencies"},
		{want: "All calls are in the control group", calls: 300, before: resume, after: update(hedge.WithControl(100)),
			shows: "latencies"},
		{want: "The control group, 99% of calls, gets none.", calls: 300, before: resume,
			after: update(hedge.WithControl(99)), shows: "delay"},
		{want: "Dry run: no hedge is sent. Without WithDryRun: A call that lasts", calls: 300, before: resume,
			after: update(dry...), shows: "delay"},
	} {
		hedgetest.Run(t, tc.want, func(t *testing.T) {
			s := hedgetest.All(t)
			handler := debug.Handler(s)
			tc.before(s)
			calls(t, s, "a", "/a/Get", tc.calls)
			tc.after(s)
			for range 2 { // before the next call, and after it
				m, text := s.Methods()[0], get(handler, "", "").Body.String()
				says(t, text, tc.want)
				delay, latencies := tc.shows == "delay", tc.shows != ""
				if m.Delay > 0 != delay || m.Choice.MaxHedges > 0 != delay || m.P50 > 0 != latencies ||
					strings.Contains(text, "A call that lasts") != delay || strings.Contains(text, "p99 without hedging") != latencies {
					t.Errorf("a delay: %t, latencies: %t, want %q; %+v in\n%s", m.Delay > 0, m.P50 > 0, tc.shows, m.Learned, text)
				}
				if strings.Contains(text, "The tail is") != strings.HasPrefix(tc.want, "Dry run") {
					t.Errorf("a gain that nobody knows in\n%s", text)
				}
				calls(t, s, "a", "/a/Get", 1)
			}
			if tc.shows != "" && tc.calls > 3 {
				update()(s)
				says(t, get(handler, "", "").Body.String(), "A call that lasts", "delay")
			}
		})
	}
}

// TestHandler_ServersThatShed has servers that turn most hedges away. Such a hedge counts a tenth in
// every extra load, and a call without another hedge counts in no share of wins.
func TestHandler_ServersThatShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.Fixed(t, 10*ms, hedge.WithBudgetPercent(10), hedge.WithControl(1))
		handler := debug.Handler(s)
		script := func(a testserver.Attempt) testserver.Plan {
			switch {
			case a.Number == 0 && a.ID%5 == 0:
				return testserver.Plan{Delay: 25 * ms}
			case a.Number == 0 || a.ID%50 == 0:
				return testserver.Plan{Delay: ms}
			}
			return testserver.Plan{Code: codes.ResourceExhausted, Trailer: metadata.Pairs("grpc-retry-pushback-ms", "0")}
		}
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, CountsOnly: true, Script: script})
		client := testpb.NewTestServiceClient(cluster.ClientT(t, hedgetest.Interceptors(s)...))
		for id := range uint64(3000) {
			if _, err := client.Unary(t.Context(), &testpb.Request{Id: id}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * ms)
		}
		m := s.Methods()[0]
		if m.TurnedAway < m.Hedges*8/10 || m.Hedges < m.Calls/5 || m.HedgeRate() > 0.1 ||
			m.Gain.Load > 0.1 || m.WinRate() != 1 {
			t.Errorf("extra load %v, of the gain %v, wins %v; %+v", m.HedgeRate(), m.Gain.Load, m.WinRate(), m.Counts)
		}
		text := get(handler, "", "").Body.String()
		served := fmt.Sprintf("%d of %[1]d calls with a served hedge", m.HedgeWins)
		says(t, text, "hedges answered 100.0% of calls with a served hedge", served, " servers turned ")
		if strings.Contains(text, "of hedged calls") {
			t.Errorf("two shares of wins in\n%s", text)
		}
		if load := get(handler, "?part=main", "text/html").Body.String(); !strings.Contains(load, "extra load") {
			t.Errorf("no chart of the extra load in\n%s", load)
		}
	})
}
