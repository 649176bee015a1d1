package otel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/debug"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/runqueue"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	hedgeotel "github.com/grpchedge/hedge/otel"
	testpb "github.com/grpchedge/hedge/proto"
)

// add adds a series of two hours of one client.
func (in input) add(metric string, instance int, values, labels string) {
	in[fmt.Sprintf(`grpc_client_hedge_%s{grpc_target="shop",grpc_method="Get",instance="%d"%s}`, metric, instance,
		labels)] = values
}

// decisions adds the counters of one client: values by outcome, and by "calls" and "sent" for
// these.
func (in input) decisions(instance int, values map[string]string) input {
	for outcome, v := range values {
		if outcome == "calls" || outcome == "sent" {
			in.add(outcome+"_total", instance, v, "")
		} else {
			in.add("decisions_total", instance, v, fmt.Sprintf(",grpc_hedge_outcome=%q", outcome))
		}
	}
	return in
}

// each returns a value for each minute.
func each(value func(minute int) int) string {
	all := make([]int, 121)
	for minute := range all {
		all[minute] = value(minute)
	}
	return strings.Trim(fmt.Sprint(all), "[]")
}

// TestAlerts has promtool evaluate the alerts for one hour and more. None fires in healthy fleets,
// and some fire for few events. In TestIncidents each fires for its own incident.
func TestAlerts(t *testing.T) {
	rules, err := os.ReadFile("../../../otel/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	rarely := func(minutes int) string { return each(func(minute int) int { return minute / minutes }) }
	from := func(minute, value int) string { return fmt.Sprintf("0x%d %dx%d", minute, value, 119-minute) }
	fleet, silent := input{}, input{}
	for n := range 50 {
		fleet.decisions(n, map[string]string{"calls": "0+600x120", "sent": "0+50x120", "won": "0+25x120", "lost": "0+25x120",
			"guarded": "0+3x120", "no_budget": "0+2x120", "throttled": from(n, 4), "resets_spent": from(2*n, 5)})
		fleet.add("silent_connections", n, each(func(minute int) int { return max(0, 2-(minute+n)%50) }), "")
		silent.add("silent_connections", n, each(func(minute int) int { return minute / 60 * (1 - min(n, 1)) }), "")
	}
	one := func(values map[string]string) input { return input{}.decisions(0, values) }
	for _, tc := range []struct {
		name   string
		series input
		alert  string // at minute 70, or none at 20, 60 and 100
	}{
		{"a fleet in which some client has a short silence each minute, and each holds some hedges back", fleet, ""},
		{"four hedged calls an hour, all lost, and some held back", one(map[string]string{"calls": "0+60x120",
			"sent": rarely(15), "won": "0x120", "lost": rarely(15), "guarded": rarely(20), "resets_spent": rarely(20),
			"no_budget": rarely(10), "throttled": rarely(10)}), ""},
		{"servers turn hedges away", one(map[string]string{"calls": "0+600x120", "sent": "0+120x120",
			"turned_away": "0+108x120", "won": "0+6x120", "lost": "0+6x120"}), ""},
		{"one hedge for five calls", one(map[string]string{"calls": "0+600x120", "sent": "0+120x120",
			"turned_away": "0+40x120"}), "HedgingOverBudget"},
		{"no win at all", one(map[string]string{"calls": "0+600x120", "sent": "0+3x120", "won": "0x120",
			"lost": "0+3x120"}), "HedgingWithoutWins"},
		{"one client of 50 has a silent backend", silent, "HedgingBackendSilent"},
		{"panic", one(map[string]string{"loser_panics": from(69, 1)}), "HedgingPanics"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			queries := []query{firing(20, "alertname"), firing(60, "alertname"), firing(100, "alertname")}
			if tc.alert != "" {
				queries = []query{firing(70, "alertname", fmt.Sprintf("{alertname=%q}", tc.alert))}
			}
			tc.series.evaluate(t, string(rules), queries...)
		})
	}
}

// input is series by name and labels, each with values of one minute after the other in promtool's
// notation.
type input map[string]string

// scraped is the series of pages that Prometheus has read, one each minute.
func scraped(pages []string) input {
	values := map[string][]string{}
	for minute, page := range pages {
		for line := range strings.Lines(page) {
			at := strings.LastIndexByte(line, ' ')
			if name := line[:at]; !strings.HasPrefix(name, "#") {
				if values[name] == nil {
					values[name] = slices.Repeat([]string{"_"}, len(pages))
				}
				values[name][minute] = strings.TrimSpace(line[at:])
			}
		}
	}
	in := input{}
	for name, v := range values {
		in[name] = strings.Join(v, " ")
	}
	return in
}

// query is a query at a minute, and the labels of the series it returns, all of the value 1.
type query struct {
	expr   string
	minute int
	want   []string
}

// firing is the query for alerts that fire, each with its labels.
func firing(minute int, by string, want ...string) query {
	return query{"group by (" + by + `) (ALERTS{alertstate="firing"})`, minute, want}
}

// evaluate has promtool evaluate rules and queries.
func (in input) evaluate(t *testing.T, rules string, queries ...query) {
	t.Helper()
	if wrong := in.promtool(t, rules, queries...); wrong != "" {
		t.Error(wrong)
	}
}

// promtool returns what promtool finds wrong. Without promtool the test is skipped, or fails if
// HEDGE_NEEDS_PROMETHEUS is set.
func (in input) promtool(t *testing.T, rules string, queries ...query) (wrong string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		if os.Getenv("HEDGE_NEEDS_PROMETHEUS") != "" {
			t.Fatal("HEDGE_NEEDS_PROMETHEUS is set, but no promtool is installed")
		}
		t.Skip("no promtool is installed: on Debian, apt-get install prometheus")
	}
	type object = map[string]any
	var series, tests []object
	for name, values := range in {
		series = append(series, object{"series": name, "values": values})
	}
	for _, q := range queries {
		samples := []object{}
		for _, labels := range q.want {
			samples = append(samples, object{"labels": labels, "value": 1})
		}
		tests = append(tests, object{"expr": q.expr, "exp_samples": samples,
			"eval_time": fmt.Sprintf("%dm", q.minute)})
	}
	test, err := json.Marshal(object{"rule_files": []string{"rules.yml"}, "evaluation_interval": "1m",
		"tests": []object{{"interval": "1m", "input_series": series, "promql_expr_test": tests}}})
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	for name, content := range map[string]string{"rules.yml": rules, "test.yml": string(test)} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(directory, "test.yml")
	if out, err := exec.Command("promtool", "test", "rules", path).CombinedOutput(); err != nil {
		return fmt.Sprintf("%v\n%s", err, out)
	}
	return ""
}

func either(first bool, a, b time.Duration) time.Duration {
	if first {
		return a
	}
	return b
}

// incident is a client of a target with stragglers, to which something happens from minute 20 to 90 of
// a hundred.
type incident struct {
	target  string
	options []hedge.Option
	methods int // called in turn; 0: one

	begin, end func(s *hedge.Scheduler)
	attempt    attempt       // nil: as usual
	timeout    time.Duration // of calls; 0: none
	cancels    bool          // when the timeout is over, the caller cancels the call
	busy       bool          // goroutines wait for a processor
	panics     bool          // hedges that have lost
	locks      bool          // a hedge fails, and makes its primary fail
	silent     bool          // one of three backends answers nothing

	page  string // the text of the page has it; "": a usual sentence
	log   string // and the log; "": no record
	alert string // the only one; "": none
}

// attempt returns the latency of an attempt of a call, and its error. usually is the latency of a target
// with stragglers.
type attempt func(id int, hedge bool, usually time.Duration) (time.Duration, error)

var (
	unavailable = status.Error(codes.Unavailable, "down")
	exhausted   = status.Error(codes.ResourceExhausted, "quota")
	turnedAway  = status.Error(codes.ResourceExhausted, "busy") // with a pushback

	selects = hedge.WithReadOnlyMethods("/shop.Items/*")
	early   = hedge.WithTrigger(hedge.Percentile(0.94)) // more hedges than the trigger would send
	late    = hedge.WithTrigger(hedge.Fixed(90 * ms))   // later than stragglers
)

func always(d time.Duration, err error) attempt {
	return func(int, bool, time.Duration) (time.Duration, error) { return d, err }
}

// longer takes more time than usually.
func longer(d time.Duration) attempt {
	return func(_ int, _ bool, usually time.Duration) (time.Duration, error) { return usually + d, nil }
}

// primaries take d; hedges are as usual.
func primaries(d time.Duration) attempt {
	return func(_ int, hedge bool, usually time.Duration) (time.Duration, error) {
		return either(hedge, usually, d), nil
	}
}

// hedges take d and end with err; primaries are as usual.
func hedges(d time.Duration, err error) attempt {
	return func(_ int, hedge bool, usually time.Duration) (time.Duration, error) {
		if hedge {
			return d, err
		}
		return usually, nil
	}
}

// failing is as usual, but one of each n calls fails.
func failing(n int) attempt {
	return func(id int, _ bool, usually time.Duration) (time.Duration, error) {
		if id%n == 0 {
			return 2 * ms, unavailable
		}
		return usually, nil
	}
}

func update(opts ...hedge.Option) func(*hedge.Scheduler) {
	return func(s *hedge.Scheduler) { _ = s.Update(opts...) }
}

var incidents = []incident{
	{target: "healthy"},
	{target: "outage", attempt: always(2*ms, unavailable), page: "All calls of the last "},
	{target: "no-answers", attempt: always(time.Hour, nil), timeout: 500 * ms, page: "All calls of the last "},
	{target: "one-in-ten-fails", attempt: failing(10), page: "% of calls of the last "},
	{target: "callers-cancel", attempt: always(time.Hour, nil), timeout: 100 * ms, cancels: true},
	{target: "slow", attempt: longer(time.Second)},
	{target: "busy-client", attempt: longer(40 * ms), busy: true, page: "This process is short of processor time",
		alert: "HedgingClientBusy"},
	{target: "mistyped-pattern", begin: update(hedge.WithReadOnlyMethods("/shop.Itms/*")), end: update(selects),
		page:  "The pattern /shop.Itms/* matches nothing in use.",
		log:   `msg="options updated" added="[WithReadOnlyMethods(\"/shop.Itms/*\")]"`,
		alert: "HedgingStopped"},
	{target: "off", begin: update(selects, hedge.WithOff(true)), end: update(selects),
		page: "All calls of this method have the option Off", alert: "HedgingStopped",
		log: `msg="options updated" added=[WithOff(true)]`},
	{target: "paused", begin: (*hedge.Scheduler).Pause, end: (*hedge.Scheduler).Resume, page: "Hedging is paused by Pause",
		log: `msg="hedging paused" by=Pause`, alert: "HedgingPaused"},
	{target: "turned-away", options: []hedge.Option{early, hedge.WithMaxHedges(1)},
		attempt: hedges(ms, turnedAway), page: "servers turned "},
	{target: "rate-limit", options: []hedge.Option{early, hedge.WithMaxHedges(1)}, attempt: hedges(ms, exhausted),
		page: "The guard has held hedges back", log: `msg="hedge guard active"`, alert: "HedgingGuarded"},
	{target: "throttle", options: []hedge.Option{hedgetest.Throttle(10, 0.1), early}, attempt: failing(3),
		page: "The target is throttled", log: `msg="hedge throttle active"`, alert: "HedgingThrottled"},
	{target: "useless", options: []hedge.Option{early, hedge.WithMaxHedges(1)},
		attempt: hedges(time.Minute, nil), page: "a second attempt is hardly faster than waiting",
		alert: "HedgingWithoutWins"},
	{target: "too-many-methods", methods: 60, options: []hedge.Option{hedge.WithMaxMethods(50)},
		page: "These calls are of methods beyond the limit of WithMaxMethods.", log: `msg="too many methods"`},
	{target: "dry", options: []hedge.Option{late, hedge.WithBudgetPercent(1)}, attempt: primaries(120 * ms),
		log: `msg="hedge budget exhausted"`, alert: "HedgingBudgetDry"},
	{target: "large-budget", options: []hedge.Option{late, hedge.WithBudgetPercent(400), hedge.WithMaxHedges(1)},
		attempt: primaries(120 * ms), alert: "HedgingOverBudget"},
	{target: "resets", options: []hedge.Option{late, hedge.WithBudgetPercent(100), hedge.WithHedgeLimit(2, time.Hour)},
		attempt: primaries(120 * ms), log: `msg="hedge reset limit reached"`, alert: "HedgingResetsSpent"},
	{target: "panics", panics: true, alert: "HedgingPanics"},
	{target: "locks", options: []hedge.Option{hedge.WithControl(20), early, hedge.WithMaxHedges(1)}, locks: true,
		page:  "% of calls of the last ",
		alert: "HedgingFailures"},
	{target: "silent-backend", silent: true,
		options: []hedge.Option{hedge.WithReadOnlyMethods("/hedgetest.TestService/*")},
		page:    " has been silent for ", log: `msg="backend silent"`,
		alert: "HedgingBackendSilent"},
}

// caller makes the calls of an incident.
type caller struct {
	*incident
	call  func(ctx context.Context, id int) error
	began time.Time

	mu     sync.Mutex
	took   []time.Duration // of calls with an answer, in the last minute
	failed int             // in the last minute
}

func (c *caller) during() bool {
	minute := time.Since(c.began) / time.Minute
	return minute >= begins && minute < ends
}

const (
	begins, ends, over = 20, 90, 100 // minutes
	everyCall          = 200 * ms
)

// unary returns a function that makes a call through the interceptor. An attempt is a wait.
func (c *caller) unary(s *hedge.Scheduler) func(ctx context.Context, id int) error {
	through := interceptor.Unary(s)
	return func(ctx context.Context, id int) error {
		method := fmt.Sprintf("/shop.Items/Get%d", id%max(c.methods, 1))
		locked := make(chan struct{}) // closed by a hedge
		return through(ctx, method, new(testpb.Request), new(testpb.Reply), nil,
			func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
				n := simulation.AttemptOf(ctx)
				rng := rand.New(rand.NewPCG(uint64(id), uint64(n)))
				d, err := time.Duration(4+4*rng.Float64())*ms, error(nil)
				if rng.IntN(20) == 0 {
					d *= 10
				}
				if c.during() && c.attempt != nil {
					d, err = c.attempt(id, n > 0, d)
				}
				if c.during() && c.locks && n == 1 {
					close(locked)
					return unavailable
				}
				select {
				case <-time.After(d):
				case <-locked:
					return unavailable
				case <-ctx.Done():
					if err = status.FromContextError(ctx.Err()).Err(); c.during() && c.panics && n > 0 {
						panic("a loser")
					}
				}
				for _, opt := range opts {
					if to, ok := opt.(grpc.TrailerCallOption); ok && err == turnedAway {
						*to.TrailerAddr = metadata.Pairs("grpc-retry-pushback-ms", "0")
					}
				}
				return err
			}, grpc.StaticMethod())
	}
}

// cluster returns a function that makes a call of one of three backends.
func (c *caller) cluster(t *testing.T, s *hedge.Scheduler, b *backend) func(ctx context.Context, id int) error {
	cluster := testserver.StartT(t, testserver.Config{InMemory: true, Backends: 3, Seed: 1, CountsOnly: true,
		Script: func(a testserver.Attempt) testserver.Plan {
			if a.Backend == 0 && c.during() {
				return testserver.Plan{Ending: testserver.Hang}
			}
			return testserver.Plan{Delay: a.Draw(testserver.DistributionT(t, "straggler"))}
		}})
	conn := cluster.ClientT(t, append(hedgeotel.DialOptions(s, b.plugin()), otherBackend)...)
	testserver.ConnectT(t, conn)
	client := testpb.NewTestServiceClient(conn)
	return func(ctx context.Context, id int) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return call(ctx, "unary", client, uint64(id))
	}
}

// one makes one call, and keeps what its caller gets.
func (c *caller) one(ctx context.Context, id int) {
	if c.during() && c.timeout > 0 {
		var cancel context.CancelFunc
		if ctx, cancel = context.WithTimeout(ctx, c.timeout); c.cancels {
			ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
			time.AfterFunc(c.timeout, cancel)
		}
		defer cancel()
	}
	start := time.Now()
	err := c.call(ctx, id)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.took = append(c.took, time.Since(start))
	case status.Code(err) != codes.Canceled:
		c.failed++
	}
}

// observed is what callers got in the last minute of an incident, and what reported it.
type observed struct {
	p99                  time.Duration // of calls with an answer; 0: none
	failed               int
	page, later, metrics string // later: ten minutes after the incident
	log                  string
	scrapes              []string // one a minute
}

// run lets an incident happen.
func (in *incident) run(t *testing.T) (o observed) {
	synctest.Test(t, func(t *testing.T) {
		b, log := newBackend(t), new(bytes.Buffer)
		s := hedgetest.New(t, append([]hedge.Option{selects, b.telemetry(t),
			hedge.WithTargetName(func(string) string { return in.target }),
			hedge.WithLogger(slog.New(slog.NewTextHandler(log, nil)))}, in.options...)...)
		page, c := debug.Handler(s), &caller{incident: in, began: time.Now()}
		if c.call = c.unary(s); in.silent {
			c.call = c.cluster(t, s, b)
		}
		defer runqueue.Replace(func() time.Duration {
			return either(in.busy && c.during(), 20*ms, 0)
		})()
		text := func() string {
			w := httptest.NewRecorder()
			page.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			return w.Body.String()
		}
		var running sync.WaitGroup
		for minute := range over {
			switch {
			case minute == begins && in.begin != nil:
				in.begin(s)
			case minute == ends && in.end != nil:
				in.end(s)
			}
			c.mu.Lock()
			c.took, c.failed = nil, 0
			c.mu.Unlock()
			for n := range int(time.Minute / everyCall) {
				running.Go(func() { c.one(t.Context(), minute*int(time.Minute/everyCall)+n) })
				time.Sleep(everyCall)
			}
			o.scrapes = append(o.scrapes, b.scrape())
			if minute == ends-1 {
				c.mu.Lock()
				slices.Sort(c.took)
				if o.failed = c.failed; len(c.took) > 0 {
					o.p99 = c.took[len(c.took)*99/100]
				}
				c.mu.Unlock()
				o.page, o.metrics = text(), o.scrapes[minute]
			}
		}
		running.Wait()
		o.later, o.log = text(), log.String()
	})
	return o
}

// reading returns the value of a metric of a scrape, summed over its series; missing reports that there
// is none.
func reading(scrape, name string) (sum float64, missing bool) {
	missing = true
	for line := range strings.Lines(scrape) {
		if series, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(series, name+"{") {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, true
			}
			sum, missing = sum+v, false
		}
	}
	return sum, missing
}

// firstSentence is the sentence of the first method.
var firstSentence = regexp.MustCompile(`\n  /\S+\n    (.*)`)

// TestIncidents has page, log, metrics and alerts report what callers get in each incident, and nothing
// that is not so. Ten minutes later the page is as before. Every query of the dashboard has an answer. The
// metrics of HTTP are those of gRPC by other names, with alerts and a dashboard of their own.
func TestIncidents(t *testing.T) {
	longtest.Simulation(t)
	series, fired := input{}, []string{}
	t.Logf("| incident | callers: p99, failed of 300 | page | p99 and failures, by metrics | log, records | alert |")
	for i := range incidents {
		in := &incidents[i]
		o := in.run(t)
		maps.Copy(series, scraped(o.scrapes))
		if in.alert != "" {
			fired = append(fired, fmt.Sprintf("{alertname=%q,grpc_target=%q}", in.alert, in.target))
		}
		tail, missing := reading(o.metrics, "grpc_client_hedge_tail_seconds")
		now, _ := reading(o.metrics, "grpc_client_hedge_failed_total")
		before, _ := reading(o.scrapes[ends-2], "grpc_client_hedge_failed_total")
		sentence := firstSentence.FindStringSubmatch(o.page)[1]
		t.Logf("| %s | %v, %d | %s | %.3gs, %v | %s, %d | %s |", in.target, o.p99.Round(ms/10), o.failed, sentence, tail,
			now-before, in.log, strings.Count(o.log, "\n"), in.alert)
		if !strings.Contains(o.page, in.page) || in.page == "" && !strings.HasPrefix(sentence, "A call that lasts ") {
			t.Errorf("%s: want %q in\n%s", in.target, in.page, o.page)
		}
		if !strings.Contains(o.log, in.log) || strings.Count(o.log, "\n") > 16 {
			t.Errorf("%s: want %q in\n%s", in.target, in.log, o.log)
		}
		unknown := o.p99 == 0 || in.target == "mistyped-pattern" // methods that are not selected have no record
		if math.Abs(now-before-float64(o.failed)) > 5 || missing != unknown ||
			!missing && in.methods == 0 && math.Abs(tail-o.p99.Seconds()) > o.p99.Seconds()/2 {
			t.Errorf("%s: callers had %v and %d failures, metrics %v s and %v", in.target, o.p99, o.failed, tail, now-before)
		}
		later := firstSentence.FindStringSubmatch(o.later)[1]
		if in.methods == 0 && (!strings.HasPrefix(later, "A call that lasts ") || strings.Contains(o.later, "In the last ")) {
			t.Errorf("%s: ten minutes later the page is\n%s", in.target, o.later)
		}
	}
	forHTTP := strings.NewReplacer("grpc_client", "http_client", "grpc_target", "http_hedge_target", "grpc_method",
		"http_hedge_method", "grpc_hedge", "http_hedge")
	renamed := input{}
	for name, values := range series {
		renamed[forHTTP.Replace(name)] = values
	}
	series.fire(t, "", "grpc_target", fired)
	fired = slices.DeleteFunc(fired, func(alert string) bool { return strings.Contains(alert, "HedgingBackendSilent") })
	for i := range fired {
		fired[i] = forHTTP.Replace(fired[i])
	}
	renamed.fire(t, "-http", "http_hedge_target", fired)
}

// fire expects some alerts, and an answer to every query of the dashboard. The names of both files end with
// suffix.
func (in input) fire(t *testing.T, suffix, target string, alerts []string) {
	t.Helper()
	rules, err := os.ReadFile("../../../otel/alerts" + suffix + ".yml")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	text, err := os.ReadFile("../../../otel/dashboard" + suffix + ".json")
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil || len(dashboard.Panels) == 0 {
		t.Fatalf("the dashboard has %d panels, %v", len(dashboard.Panels), err)
	}
	ever := `group by (alertname, ` + target + `) (max_over_time(ALERTS{alertstate="firing"}[100m]))`
	queries := []query{{ever, over - 1, alerts}}
	variables := strings.NewReplacer("$target", ".*", "$method", ".*", "$__rate_interval", "4m")
	for _, panel := range dashboard.Panels {
		for _, of := range panel.Targets {
			expr := "group(count_over_time((" + variables.Replace(of.Expr) + ")[20m:1m]))"
			queries = append(queries, query{expr, over - 1, []string{"{}"}})
		}
	}
	in.evaluate(t, string(rules), queries...)
}
