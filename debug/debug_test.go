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
			t.Errorf("no %q in\n%s", want, text)
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
			calls(t, s, "dns:///shop:443", "/shop.Items/Get", 40)
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
			t.Errorf("%+v", parsed)
		}
		if len(m.History) < 30 || len(m.History) > 61 || time.Since(m.History[0].At) > 10*time.Minute+20*time.Second {
			t.Errorf("%d samples, the first %v ago", len(m.History), time.Since(m.History[0].At))
		}
		for _, sample := range m.History[1:] {
			if sample.Tail == 0 || sample.Unhedged == 0 || sample.Load < 0 || sample.Load > 0.2 {
				t.Errorf("%+v", sample)
			}
		}
		says(t, get(h, "", "*/*").Body.String(), // as curl asks
			"\ndns:///shop:443\n\n  /shop.Items/Get\n    "+m.Sentence+"\n", "calls ", "4,400")
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
			t.Error(text)
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
	other := hedge.WithMethods("/other/*")
	for _, tc := range []struct {
		want    string
		calls   int
		options []hedge.Option
		first   func(*hedge.Scheduler)
	}{
		{"The method is being learned: 3 calls seen.", 3, nil, nil},
		{"Hedging is paused by Pause, until Resume is called.", 30, nil, (*hedge.Scheduler).Pause},
		{"No option selects this method", 3, []hedge.Option{other}, nil},
		{"No option selects a method of the first 100 calls: see WithReadOnlyMethods. Methods seen: /a/Get.", 100,
			[]hedge.Option{other}, nil},
		{"A call that lasts 8 ms gets a hedge, and another 8 ms later.", 30,
			[]hedge.Option{hedge.WithTrigger(hedge.Fixed(8 * ms))}, nil},
		{"All hedges of a call are due at once.", 30, []hedge.Option{hedge.WithTrigger(hedge.Fixed(0))}, nil},
		{"A call that lasts 5.", 300, []hedge.Option{hedge.WithTrigger(hedge.Percentile(0.5))}, nil},
		{"The options allow no hedges", 30, []hedge.Option{hedge.WithMethodOptions("/a/*", hedge.WithMaxHedges(0))}, nil},
		{"Dry run: no hedge is sent", 30, []hedge.Option{hedge.WithDryRun(true)}, nil},
		{"have the option Off or WithOff", 3, []hedge.Option{hedge.WithOff(true)}, nil},
		{"1 hedge replaced an attempt that had failed.", 30, []hedge.Option{hedge.WithFailover()}, away},
		{"1 hedge of calls to other targets went here", 30, []hedge.Option{hedge.WithFailover()}, away},
		{"No calls were made to this target, only hedges", 30, []hedge.Option{hedge.WithFailover()}, away},
		{"The target is throttled: 0.0 of 1 tokens are left", 1, []hedge.Option{hedgetest.Throttle(1, 0.001)}, down},
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
		{"The method is being learned: ", 3, (*hedge.Scheduler).Pause, resume, "latencies"},
		{"have the option Off or WithOff", 300, resume, update(hedge.WithOff(true)), "latencies"},
		{"have the option Off or WithOff", 300, resume,
			update(hedge.WithMethodOptions("/a/*", hedge.WithOff(true))), "latencies"},
		{"No option selects this method", 300, resume, update(hedge.WithMethods("/b/*")), ""},
		{"The method's descriptor is not linked", 300, resume, update(hedge.WithIdempotentOnly()), ""},
		{"The options allow no hedges", 300, resume, update(hedge.WithBudgetPercent(0)), "latencies"},
		{"The options allow no hedges", 300, resume,
			update(hedge.WithTargetOptions("a", hedge.WithBudgetPercent(0))), "latencies"},
		{"The options allow no hedges", 300, resume, update(hedge.WithMaxHedges(0)), "latencies"},
		{"The options allow no hedges", 300, resume,
			update(hedge.WithMaxHedges(0), hedge.WithTrigger(hedge.Fixed(8*ms))), "latencies"},
		{"All calls are in the control group", 300, resume, update(hedge.WithControl(100)), "latencies"},
		{"The control group, 99% of calls, gets none.", 300, resume, update(hedge.WithControl(99)), "delay"},
		{"Dry run: no hedge is sent. Without WithDryRun: A call that lasts", 300, resume, update(dry...), "delay"},
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
					strings.Contains(text, "A call that lasts") != delay || strings.Contains(text, "of primaries") != latencies {
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
		says(t, text, "hedges answered 100.0% of calls with a served hedge", served, "- Servers turned ")
		if strings.Contains(text, "of hedged calls") {
			t.Errorf("two shares of wins in\n%s", text)
		}
		if load := get(handler, "?part=main", "text/html").Body.String(); !strings.Contains(load, "extra load") {
			t.Errorf("no chart of the extra load in\n%s", load)
		}
	})
}

// TestText_OfATarget checks the text for states of a target, and that it is empty without them.
func TestText_OfATarget(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	silent := func(connections int, since time.Duration, addresses ...string) stats.Method {
		b := stats.Backends{Ready: 3, Connections: 6, Moved: 4321}
		for _, address := range addresses {
			b.Silent = append(b.Silent, stats.SilentBackend{Address: address, Connections: connections, Since: ago(since)})
		}
		return stats.Method{Backends: b}
	}
	within := func(value, low, high time.Duration) stats.Interval {
		return stats.Interval{Value: value * ms, Low: low * ms, High: high * ms}
	}
	gain := stats.Gain{
		Over: 30 * time.Minute, Calls: 98765, Control: 1234, Measured: true, Load: 0.05,
		Hedged: within(54, 52, 57), Unhedged: within(210, 180, 260), Saved: within(3, 2, 4),
		SavedPerHedge: within(60, 40, 80),
	}
	few := gain
	few.Measured = false
	hedged := few
	hedged.Calls = 22
	for _, tc := range []struct {
		name      string
		stats     stats.Method
		want, not []string
	}{
		{"control group", stats.Method{Gain: &gain}, []string{"- Last 30 minutes: p99 was 54ms (95% CI 52ms to 57ms) with " +
			"hedging, 210ms (180ms to 260ms) in the unhedged control group. Hedging saved 3ms (2ms to 4ms) per call, " +
			"60ms per hedge, for 5.0% more calls.", "1,234 of 99,999"}, []string{"estimate from primaries"}},
		{"small control group", stats.Method{Gain: &few},
			[]string{"The control group is still too small: 1,234 calls in the last 30 min."}, []string{"Last 30 minutes"}},
		{"few hedged calls", stats.Method{Gain: &hedged}, []string{"The group that may be hedged is still too small: " +
			"22 calls in the last 30 min. Measuring a gain takes at least ten minutes, and 500 calls of each group."}, nil},
		{"no call yet", stats.Method{Gain: &stats.Gain{}}, nil, []string{"too small"}},
		{"no control group", stats.Method{Learned: stats.Learned{Choice: stats.Choice{UnhedgedTail: ms, CutShort: 0.2}}},
			[]string{"20.0% of them cut short: a lower bound where requests differ. WithControl(1) measures it."}, nil},
		{"nothing", stats.Method{Guard: stats.Guard{Share: 1}}, nil,
			[]string{"ontrol group", "guard", "resets", "silent", "saved", "rules", "moved", "backends", "paused", "- "}},
		{"guard", stats.Method{Guard: stats.Guard{Share: 0.25, Since: ago(90 * time.Second), Reason: "hedges failed"}},
			[]string{"- The guard has held hedges back for 1.5 min: hedges failed. The share is now 25.0%.",
				"25.0% of due hedges, for 1.5 min"}, nil},
		{"resets learned",
			stats.Method{Resets: stats.Resets{Learned: 50, Since: ago(2 * time.Second), Until: ago(-118 * time.Second)}},
			[]string{"at most 50 hedges per minute are sent. The limit rises over the next 1.97 min.", "50 per minute"}, nil},
		{"resets set", stats.Method{Resets: stats.Resets{Limit: 100, Per: time.Second}}, []string{"100 in 1 s"},
			[]string{"- "}},
		{"silent", silent(4, 12*time.Second, "10.0.0.2:443\x1b[2J"), []string{
			`- "10.0.0.2:443\x1b[2J" has been silent for 12 s, on 4 connections: calls`, "1, the first for 12 s", "4,321",
			"3, over 6 connections"}, []string{"\x1b", "Only one backend"}},
		{"many silent", silent(1, time.Second, "A", "B", "C", "D", "E", "F", "G"),
			[]string{"- E has been silent for 1 s, on 1 connection:", "- Further silent backends: 2."}, []string{"- F has"}},
		{"single connection", stats.Method{Backends: stats.Backends{SingleConnection: true}},
			[]string{"- Hedges use the connection of the primary"}, []string{"Only one backend"}},
		{"single backend", stats.Method{Backends: stats.Backends{SingleConnection: true, Ready: 1, Connections: 1}},
			[]string{"- Only one backend is ready"}, []string{"Hedges use"}},
		{"saved", stats.Method{Budget: stats.Budget{Tokens: 3, Burst: 8, Saved: 12.25}},
			[]string{"3.0 of 8.0 tokens", "12.2 tokens"}, nil},
		{"rules", stats.Method{Rules: []string{"/s/*", "dns:///eu-*", "c", "d", "e", "f"}},
			[]string{"/s/*, dns:///eu-*, c, d, e, and 1 more"}, nil},
		{"paused by the switch", stats.Method{PausedBy: "HEDGE_DISABLED"},
			[]string{"paused by the environment variable HEDGE_DISABLED"}, nil},
	} {
		text := debug.Text(tc.stats, now)
		says(t, text, tc.want...)
		for _, not := range tc.not {
			if strings.Contains(text, not) {
				t.Errorf("%s: %q in\n%s", tc.name, not, text)
			}
		}
	}
}
