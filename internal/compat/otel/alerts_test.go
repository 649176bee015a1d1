package otel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
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
// and some fire for few events. In TestAlertsAndPanels each fires for its own trouble.
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

// TestAlertsAndPanels has promtool read the scrapes of ninety minutes. Each alert fires for the
// target with its trouble, and no other alert fires, also if alerts do not wait. Every query of the
// dashboard has an answer in the last twenty minutes.
func TestAlertsAndPanels(t *testing.T) {
	longtest.Simulation(t)
	pages, healthy, counting := scenario(t)
	fire := map[string]string{healthy: "HedgingBackendSilent", counting: "HedgingResetsSpent"}
	for _, tr := range troubles {
		fire[tr.target] = tr.alert
	}
	alertsAndPanels(t, "", "grpc_target", pages, fire)
}

// TestAlertsAndPanels_OfHTTP has the same troubles for requests of package hedgehttp.
func TestAlertsAndPanels_OfHTTP(t *testing.T) {
	longtest.Simulation(t)
	fire := map[string]string{}
	for _, tr := range troubles {
		fire["http://"+tr.target] = tr.alert
	}
	alertsAndPanels(t, "-http", "http_hedge_target", httpScenario(t), fire)
}

// alertsAndPanels checks a dashboard and alerts; the names of the files end with suffix. fire has an
// alert by the value of the label target.
func alertsAndPanels(t *testing.T, suffix, target string, pages []string, fire map[string]string) {
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
	if err != nil {
		t.Fatal(err)
	}
	last := len(pages) - 1
	var alerts []string
	for of, alert := range fire {
		alerts = append(alerts, fmt.Sprintf("{alertname=%q,%s=%q}", alert, target, of))
	}
	queries := []query{firing(last, "alertname, "+target, alerts...)}
	waiting := regexp.MustCompile(`(?m)^ +for: .*\n`)
	scraped(pages).evaluate(t, waiting.ReplaceAllString(string(rules), ""), queries...)
	variables := strings.NewReplacer("$target", ".*", "$method", ".*", "$__rate_interval", "4m")
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expr := "group(count_over_time((" + variables.Replace(target.Expr) + ")[20m:1m]))"
			queries = append(queries, query{expr, last, []string{"{}"}})
		}
	}
	scraped(pages).evaluate(t, string(rules), queries...)
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

// trouble is a target with a trouble of its own, and the alert that is for it. takes returns the
// latency of an attempt in milliseconds.
type trouble struct {
	target, alert string
	options       []hedge.Option
	takes         func(id int, hedge bool) (time.Duration, error)
	panics        bool // a hedge that has lost
}

var troubles = []trouble{
	{target: "dry", alert: "HedgingBudgetDry", options: []hedge.Option{hedge.WithBudgetPercent(1)},
		takes: func(_ int, hedge bool) (time.Duration, error) { return either(hedge, 1, 100), nil }},
	{target: "wasted", alert: "HedgingWithoutWins", takes: func(id int, hedge bool) (time.Duration, error) {
		return either(id%20 > 0, 1, either(hedge, 1000, 30)), nil
	}},
	{target: "throttled", alert: "HedgingThrottled", options: []hedge.Option{hedgetest.Throttle(10, 0.1)},
		takes: func(int, bool) (time.Duration, error) { return 30, status.Error(codes.Unavailable, "down") }},
	{target: "paused", alert: "HedgingPaused", takes: func(int, bool) (time.Duration, error) { return 1, nil }},
	{target: "busy", alert: "HedgingOverBudget", options: []hedge.Option{hedge.WithBudgetPercent(400)},
		takes: func(_ int, hedge bool) (time.Duration, error) { return either(hedge, 1, 30), nil }},
	{target: "guarded", alert: "HedgingGuarded", takes: func(id int, hedge bool) (time.Duration, error) {
		if hedge && id%40 == 0 {
			return 0, status.Error(codes.ResourceExhausted, "quota")
		}
		return either(hedge || id%20 > 0, 1, 30), nil
	}},
	{target: "panicking", alert: "HedgingPanics", takes: func(id int, hedge bool) (time.Duration, error) {
		return either(id%20 > 0, 1, either(hedge, either(id%40 > 0, 1, 1000), 30)), nil
	}, panics: true},
}

func either(first bool, a, b time.Duration) time.Duration {
	if first {
		return a
	}
	return b
}

// attempt is an attempt of call id to the target.
func (tr trouble) attempt(ctx context.Context, id int, hedge bool) error {
	d, err := tr.takes(id, hedge)
	if _, gone := hedgetest.Taking(d * ms)(ctx); gone != nil && hedge && tr.panics {
		panic("a loser")
	}
	return err
}

// call makes one call to the target.
func (tr trouble) call(t *testing.T, s *hedge.Scheduler, id int) {
	var attempts atomic.Int32
	_, _ = hedge.Do(t.Context(), s, tr.target, "/shop.Items/Get", func(ctx context.Context) (int, error) {
		return 0, tr.attempt(ctx, id, attempts.Add(1) > 1)
	})
}

// scenario returns Prometheus's scrapes for each of ninety minutes, and the scheduler's counts.
// Three backends with stragglers serve a connection, and one of them is stalled for the last ten
// minutes. A server counts the resets of another connection, busy servers turn most hedges of a third
// away, and each trouble has its own target.
func scenario(t *testing.T) (scrapes []string, healthy, counting string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t)
		var frozen, over atomic.Bool
		cluster := testserver.StartT(t, testserver.Config{Name: "items", InMemory: true, Backends: 3, Seed: 1,
			CountsOnly: true,
			Script: func(a testserver.Attempt) testserver.Plan {
				if a.Backend == 0 && frozen.Load() {
					return testserver.Plan{Ending: testserver.Hang}
				}
				return testserver.Plan{Delay: a.Draw(testserver.DistributionT(t, "straggler"))}
			}})
		resets := testserver.StartT(t, testserver.Config{Name: "resets", InMemory: true, CountsOnly: true,
			Script: testserver.ByNumber(testserver.Plan{Delay: 30 * ms}, testserver.Plan{Delay: ms})})
		busy := testserver.StartT(t, testserver.Config{Name: "shed", InMemory: true, CountsOnly: true, Backends: 5,
			Script: func(a testserver.Attempt) testserver.Plan {
				switch {
				case a.Number == 0:
					return testserver.Plan{Delay: either(a.ID%5 > 0, 1, 100) * ms}
				case a.ID%25 == 0:
					return testserver.Plan{Delay: ms}
				}
				return testserver.Plan{Code: codes.ResourceExhausted, Trailer: metadata.Pairs("grpc-retry-pushback-ms", "0")}
			}})
		fixed := hedge.WithTrigger(hedge.Fixed(10 * ms))
		options := []hedge.Option{b.telemetry(t), hedge.WithControl(40),
			hedge.WithTargetOptions(resets.Target(), fixed, hedge.WithControl(0), hedge.WithBudgetPercent(100),
				hedge.WithHedgeLimit(2, time.Hour)),
			hedge.WithTargetOptions(busy.Target(), fixed, hedge.WithControl(0))}
		for _, tr := range troubles {
			options = append(options,
				hedge.WithTargetOptions(tr.target,
					append(tr.options, fixed, hedge.WithMaxHedges(1), hedge.WithControl(0))...))
		}
		s := hedgetest.All(t, options...)
		healthy, counting = cluster.Target(), resets.Target()

		var callers sync.WaitGroup
		each := func(pause time.Duration, call func(id uint64)) {
			callers.Go(func() {
				for id := uint64(0); !over.Load(); id++ {
					call(id)
					time.Sleep(pause)
				}
			})
		}
		for i, c := range []*testserver.Cluster{cluster, resets, busy} {
			conn := c.ClientT(t, append(hedgeotel.DialOptions(s, b.plugin()), otherBackend)...)
			testserver.ConnectT(t, conn)
			client, name := testpb.NewTestServiceClient(conn), []string{"unary", "stream"}
			each(250*ms, func(id uint64) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				_ = call(ctx, name[int(id%10/9)*max(1-i, 0)], client, id)
			})
		}
		paused := hedgetest.All(t, b.telemetry(t))
		paused.Pause()
		for _, tr := range troubles {
			of := s
			if tr.target == "paused" {
				of = paused
			}
			each(time.Second, func(id uint64) { tr.call(t, of, int(id)) })
		}
		time.Sleep(ms / 2)
		for minute := range 90 {
			scrapes = append(scrapes, b.scrape())
			frozen.Store(minute >= 80)
			time.Sleep(time.Minute)
		}
		scrapes = append(scrapes, b.scrape())
		over.Store(true)
		callers.Wait()
		for _, m := range s.Methods() {
			if m.Target == busy.Target() && (m.Hedges < m.Calls/5 || m.HedgeRate() > 0.11) {
				t.Errorf("busy servers: %d hedges, %d turned away, extra load %v", m.Hedges, m.TurnedAway, m.HedgeRate())
			}
		}
	})
	return scrapes, healthy, counting
}
