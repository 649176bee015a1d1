package debug_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/config"
	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/internal/registry"
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

// TestHandler_Formats asks for a method in each format, after eleven minutes of calls. The budget
// pays for hedges of some slow calls, and the others show the tail without hedging.
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

// TestHandler_AfterAChange has the page, Methods and its history describe the settings in force,
// and not the calls before. Once the method is hedged again, its delay is there again.
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

// TestHandler_ServersThatShed has servers that turn most hedges away. Such a hedge counts a tenth
// in every extra load, and a call without another hedge counts in no share of wins.
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

// The page shows the options in force, and warns of an update that was refused until another one is
// accepted.
func TestHandler_Configuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.New(t, hedge.WithReadOnlyMethods("/shop.Items/<b>"), hedge.WithMaxHedges(1))
		calls(t, s, "dns:///shop:443", "/shop.Items/Get", 1)
		h, start := debug.Handler(s), time.Now()
		want := func(step string, options string, since time.Time, refused string, last bool) {
			t.Helper()
			var page struct {
				Configuration struct {
					Options []string
					Since   time.Time
					Refused *struct {
						At    time.Time
						Error string
						Last  bool
					}
				}
			}
			body := get(h, "?format=json", "").Body.Bytes()
			if err := json.Unmarshal(body, &page); err != nil {
				t.Fatal(err)
			}
			c := page.Configuration
			got, late := strings.Join(c.Options, " "), c.Since.Sub(since).Abs() > time.Second
			if got != options || late || (c.Refused == nil) != (refused == "") {
				t.Errorf("%s: the JSON has %q since %v, want %q since %v; refused: %+v",
					step, got, c.Since, options, since, c.Refused)
			}
			if c.Refused != nil && (!strings.Contains(c.Refused.Error, refused) || c.Refused.Last != last) {
				t.Errorf("%s: the JSON has the refused update %+v, want %q, the last: %v", step, c.Refused, refused, last)
			}
			html, text := get(h, "?format=html", "").Body.String(), get(h, "", "").Body.String()
			alarm := strings.Contains(html, `class="alarm">The update at`)
			if alarm != last || strings.Contains(text, "REFUSED") != last {
				t.Errorf("%s: a warning on the page: %v, want %v; the text is\n%s", step, alarm, last, text)
			}
			if shown := strings.Contains(html, refused) && strings.Contains(text, refused); !shown {
				t.Errorf("%s: %q is missing in\n%s", step, refused, text)
			}
			for _, option := range strings.Fields(options) {
				if !strings.Contains(text, "    "+option+"\n") {
					t.Errorf("%s: %q is missing in\n%s", step, option, text)
				}
			}
			if strings.Contains(html, "<b>") {
				t.Errorf("%s: an option is not escaped in\n%s", step, html)
			}
		}
		first := `WithReadOnlyMethods("/shop.Items/<b>") WithMaxHedges(1)`
		want("at first", first, start, "", false)
		time.Sleep(time.Minute)
		if err := config.Update(s, nil); err == nil {
			t.Error("an emptied file is no error")
		}
		want("after an emptied file", first, start, "syntax error", true)
		if err := config.Update(s, []byte(`{"maxHedges": 9}`)); err == nil {
			t.Error("maxHedges: 9 is no error")
		}
		want("after a mistake", first, start, "WithMaxHedges(9): must be 0 to 4", true)
		time.Sleep(time.Minute)
		if err := config.Update(s, []byte(`{"allMethods": true}`)); err != nil {
			t.Error(err)
		}
		want("after an update", "WithAllMethods()", start.Add(2*time.Minute), "WithMaxHedges(9): must be 0 to 4", false)
		time.Sleep(time.Minute)
		if err := config.Update(s, []byte(`{"window": "10s", "off": true}`)); err == nil {
			t.Error("another window is no error")
		}
		want("off beside a mistake", "WithAllMethods() WithOff(true)", start.Add(3*time.Minute), "WithWindow(10s)", true)
	})
}

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
		{name: "control group", stats: stats.Method{Gain: &gain},
			want: []string{"- Last 30 minutes: p99 was 54ms (95% CI 52ms to 57ms) with " +
				"hedging, 210ms (180ms to 260ms) in the unhedged control group. Hedging saved 3ms (2ms to 4ms) per call, " +
				"60ms per hedge, for 5.0% more calls.", "1,234 of 99,999"}, not: []string{"an estimate"}},
		{name: "small control group", stats: stats.Method{Gain: &few},
			want: []string{"The control group is still too small: 1,234 calls in the last 30 min."},
			not:  []string{"Last 30 minutes"}},
		{name: "few hedged calls", stats: stats.Method{Gain: &hedged},
			want: []string{"The group that may be hedged is still too small: " +
				"22 calls in the last 30 min. Measuring a gain takes at least ten minutes, and 500 calls of each group."}},
		{name: "no call yet", stats: stats.Method{Gain: &stats.Gain{}}, not: []string{"too small"}},
		{name: "no control group",
			stats: stats.Method{Learned: stats.Learned{Choice: stats.Choice{UnhedgedTail: ms, CutShort: 0.2}}},
			want:  []string{"The tail without hedging is an estimate from calls that were not hedged, some of them by chance."}},
		{name: "unknown tail", stats: stats.Method{Learned: stats.Learned{Choice: stats.Choice{CutShort: 0.2}}},
			want: []string{"The tail without hedging is unknown: too few slow calls were not hedged. WithControl(1) measures it."}},
		{name: "nothing", stats: stats.Method{Guard: stats.Guard{Share: 1}},
			not: []string{"ontrol group", "guard", "resets", "silent", "saved", "rules", "moved", "backends", "paused", "- "}},
		{name: "guard",
			stats: stats.Method{Guard: stats.Guard{Share: 0.25, Since: ago(90 * time.Second), Reason: "hedges failed"}},
			want:  []string{"- The guard has held hedges back for 1.5 min: hedges failed. The share is now 25.0%."}},
		{name: "resets learned",
			stats: stats.Method{Resets: stats.Resets{Learned: 50, Since: ago(2 * time.Second), Until: ago(-118 * time.Second)}},
			want:  []string{"at most 50 hedges per minute are sent. The limit rises over the next 1.97 min."}},
		{name: "resets set", stats: stats.Method{Resets: stats.Resets{Limit: 100, Per: time.Second}},
			want: []string{"100 in 1 s"}, not: []string{"- "}},
		{name: "silent", stats: silent(4, 12*time.Second, "10.0.0.2:443\x1b[2J"), want: []string{
			`- "10.0.0.2:443\x1b[2J" has been silent for 12 s, on 4 connections: calls`, "4,321",
			"3, over 6 connections"}, not: []string{"\x1b", "Only one backend"}},
		{name: "many silent", stats: silent(1, time.Second, "A", "B", "C", "D", "E", "F", "G"),
			want: []string{"- E has been silent for 1 s, on 1 connection:", "- Further silent backends: 2."},
			not:  []string{"- F has"}},
		{name: "destinations", stats: stats.Method{Destinations: []string{"dns:///us", "B\x1b[2J"}},
			want: []string{"- Hedges go to dns:///us, \"B\\x1b[2J\"."}, not: []string{"\x1b"}},
		{name: "no policy", stats: stats.Method{Method: "/s/M", Counts: stats.Counts{Hedges: 1}},
			want: []string{"- No ready connection has the policy hedge_other_backend"}},
		{name: "no policy, and a function", stats: stats.Method{Method: "f", Counts: stats.Counts{Hedges: 1}},
			not: []string{"hedge_other_backend"}},
		{name: "no policy, and a destination", not: []string{"hedge_other_backend"}, stats: stats.Method{Method: "/s/M",
			Counts: stats.Counts{Hedges: 1}, Destinations: []string{"dns:///us"}}},
		{name: "the backend of the primary", want: []string{"- Hedges go to the address of the primary."},
			not: []string{"Only one backend", "hedge_other_backend"}, stats: stats.Method{Method: "/s/M",
				Counts:   stats.Counts{Hedges: 16, SameBackend: 15},
				Backends: stats.Backends{Ready: 3, Connections: 3}}},
		{name: "a backend each", not: []string{"address of the primary"}, stats: stats.Method{Method: "/s/M",
			Counts:   stats.Counts{Hedges: 1112, SameBackend: 15},
			Backends: stats.Backends{Ready: 3, Connections: 3}}},
		{name: "single backend", want: []string{"- Only one backend is ready"}, not: []string{"Hedges go"},
			stats: stats.Method{Method: "/s/M", Counts: stats.Counts{Hedges: 20, SameBackend: 20},
				Backends: stats.Backends{Ready: 1, Connections: 1}}},
		{name: "saved", stats: stats.Method{Budget: stats.Budget{Tokens: 3, Burst: 8, Saved: 12.25}},
			want: []string{"3.0 of 8.0 tokens", "12.2 tokens"}},
		{name: "too many methods", stats: stats.Method{Method: "(other)", Counts: stats.Counts{Calls: 1, Off: 1}},
			want: []string{"beyond the limit of WithMaxMethods"}},
		{name: "rules", stats: stats.Method{Rules: []string{"/s/*", "dns:///eu-*", "c", "d", "e", "f"}},
			want: []string{"/s/*, dns:///eu-*, c, d, e, and 1 more"}},
		{name: "all fail", stats: stats.Method{Counts: stats.Counts{Calls: 9000},
			Recent: stats.Recent{Counts: stats.Counts{Calls: 1200, Failed: 1203, FailedHedged: 31}, Over: 75 * time.Second}},
			want: []string{"    All calls of the last 1.25 min failed: 1,203, 31 of them with a hedge. The method"}},
		{name: "some fail", stats: stats.Method{PausedBy: "Pause",
			Recent: stats.Recent{Counts: stats.Counts{Calls: 1200, Failed: 12}, Over: time.Minute}},
			want: []string{"    1.0% of calls of the last 1 min failed: 12 of 1,200. Hedging is paused",
				"failed calls, last 1 min\t12 of 1,200, 0 with a hedge"}},
		{name: "few fail", stats: stats.Method{PausedBy: "Pause",
			Recent: stats.Recent{Counts: stats.Counts{Calls: 1201, Failed: 12}, Over: time.Minute}},
			want: []string{"    Hedging is paused", "failed calls, last 1 min"}},
		{name: "busy", stats: stats.Method{Learned: stats.Learned{Delay: 8 * ms},
			Recent: stats.Recent{Counts: stats.Counts{Calls: 500, ClientBusy: 40, Hedges: 3}, Over: time.Minute,
				P99: 90 * ms}},
			want: []string{"    This process is short of processor time, so hedges are held back: 40, and 3 sent, in the last 1 min. " +
				"Otherwise: A call that lasts 8 ms", "- Goroutines of this process wait", "p99 of callers\t90 ms"}},
		{name: "hardly busy", stats: stats.Method{Learned: stats.Learned{Delay: 8 * ms},
			Recent: stats.Recent{Counts: stats.Counts{Calls: 500, ClientBusy: 40, Hedges: 41}, Over: time.Minute}},
			want: []string{"    A call that lasts 8 ms"}, not: []string{"processor"}},
		{name: "in the past", stats: stats.Method{Counts: stats.Counts{Calls: 99999, Hedges: 9000, TurnedAway: 4000,
			PrimaryWins: 5000, ClientBusy: 9000, UnknownOption: 90, SameBackend: 9000, BudgetExhausted: 9, Failed: 9000},
			Budget: stats.Budget{Burst: 3}, Learned: stats.Learned{Delay: 8 * ms},
			Recent: stats.Recent{Counts: stats.Counts{Calls: 1200, Hedges: 9}, Over: time.Minute}},
			want: []string{"    A call that lasts 8 ms"}, not: []string{"    - ", "failed calls, last"}},
		{name: "lately", stats: stats.Method{Learned: stats.Learned{Delay: 8 * ms},
			Recent: stats.Recent{Counts: stats.Counts{Calls: 1200, Hedges: 100, TurnedAway: 80, PrimaryWins: 20},
				Over: time.Minute}},
			want: []string{"- In the last 1 min hedges answered 0.0% of calls with a served hedge",
				"- In the last 1 min servers turned 80 of 100 hedges away"}},
		{name: "paused by the switch", stats: stats.Method{PausedBy: "HEDGE_DISABLED"},
			want: []string{"paused by the environment variable HEDGE_DISABLED"}},
	} {
		text := debug.Text(tc.stats, now)
		says(t, text, tc.want...)
		for _, not := range tc.not {
			if strings.Contains(text, not) {
				t.Errorf("%s: want no %q in\n%s", tc.name, not, text)
			}
		}
	}
}

// TestUnhedgeable has methods with mostly unhedgeable calls, for each reason. The page's sentence
// begins with the reason, after failures, the log has it once, and there is no prediction, with and
// without a dry run. Methods with hedgeable calls are the controls.
func TestUnhedgeable(t *testing.T) {
	const none, most = "Calls cannot be hedged: ", "Most calls cannot be hedged: "
	early := hedge.WithTrigger(hedge.Fixed(ms)) // calls with foreign replies fail, and so teach nothing
	latency := testserver.Straggler(testserver.Uniform(4*ms, 7*ms), 0.05, 10)
	for _, tc := range []struct {
		name           string
		option         hedge.Option
		foreign        int // of three replies: they are no protobuf messages
		timeout        time.Duration
		call           []grpc.CallOption // of unary calls
		stream, header bool
		want           stats.Reason
		sentence       string
	}{
		{name: "hedged"},
		{name: "hedged stream", stream: true},
		{name: "foreign replies", option: early, foreign: 3, want: stats.NotReplayable, sentence: none + "their messages"},
		{name: "two in three are foreign", option: early, foreign: 2, want: stats.NotReplayable,
			sentence: most + "their messages"},
		{name: "foreign messages of a stream", option: early, foreign: 3, stream: true, want: stats.NotReplayable,
			sentence: none + "their messages"},
		{name: "an option that embeds one", call: []grpc.CallOption{struct{ grpc.CallOption }{grpc.WaitForReady(true)}},
			want: stats.UnknownOption, sentence: none + "a call option of theirs embeds"},
		{name: "headers first", stream: true, header: true, want: stats.EarlyHeaders,
			sentence: none + "callers call Header first"},
		{name: "headers first, with WithWaitForMessage", option: hedge.WithWaitForMessage("/*/*"), stream: true,
			header: true},
		{name: "deadline", option: hedge.WithTrigger(hedge.Fixed(8 * ms)), timeout: 12 * ms, want: stats.DeadlineNear,
			sentence: most + "their deadlines"},
	} {
		for _, dry := range []bool{false, true} {
			if tc.header && tc.want == "" && dry {
				continue // a stream that is not hedged does not wait
			}
			hedgetest.Run(t, tc.name+map[bool]string{true: ", dry run"}[dry], func(t *testing.T) {
				var log bytes.Buffer
				s := hedgetest.All(t, hedge.WithDryRun(dry), hedge.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
					tc.option)
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, CountsOnly: true, Seed: 1, DrawByID: true,
					Script: func(a testserver.Attempt) testserver.Plan {
						return testserver.Plan{Delay: a.Draw(latency), Header: metadata.Pairs("a", "b"), HeaderAtOnce: true}
					}})
				conn := cluster.ClientT(t, hedgetest.Interceptors(s)...)
				for n := range 300 {
					r, reply := &testpb.Request{Id: uint64(n) + 1, Messages: 1}, any(&testpb.Reply{})
					if n%3 < tc.foreign {
						reply = new(any)
					}
					ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.timeout, time.Hour))
					if !tc.stream {
						_ = conn.Invoke(ctx, testpb.TestService_Unary_FullMethodName, r, reply, tc.call...)
					} else if st, err := testpb.NewTestServiceClient(conn).ServerStream(ctx, r); err == nil {
						if tc.header {
							_, _ = st.Header()
						}
						_ = st.RecvMsg(reply)
					}
					cancel()
				}
				m := s.Methods()[0]
				text := get(debug.Handler(s), "", "").Body.String()
				told := fmt.Sprintf(" method=%s reason=%q\n", m.Method, tc.want)
				if m.Unhedgeable != tc.want || strings.Count(log.String(), "unhedgeable") != map[bool]int{true: 1}[tc.want != ""] ||
					tc.want != "" && !strings.Contains(log.String(), told) {
					t.Errorf("unhedgeable: %q, want %q; the log is\n%s", m.Unhedgeable, tc.want, log.String())
				}
				if tc.want == "" {
					if strings.Contains(text, "cannot be hedged") || m.Hedged+m.DryRun == 0 || (m.Forecasts != nil) != dry {
						t.Errorf("%+v; the page is\n%s", m, text)
					}
					return
				}
				if says(t, text, tc.sentence); m.Failed == 0 {
					says(t, text, m.Method+"\n    "+tc.sentence)
				}
				if m.Forecasts != nil || m.Choice.PredictedTail != m.Choice.UnhedgedTail || m.Choice.PredictedLoad != 0 {
					t.Errorf("forecasts %v and the choice %+v, want no predictions", m.Forecasts, m.Choice)
				}
			})
		}
	}
}

// TestHandler_Outage has every call fail for four of nine minutes, with a reader only at the end.
// The page begins with that, the latency is unknown, and the curve has a gap. Three minutes later
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
		says(t, html, `class="alarm"><dt>failed lately`, `class="sentence down">All calls`)
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
		if newest.Tail != 0 || newest.Unhedged != 0 {
			t.Errorf("the newest sample is %+v, want no latency", newest)
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
