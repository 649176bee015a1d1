package otel_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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
