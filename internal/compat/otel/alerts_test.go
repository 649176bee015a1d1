package otel_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
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
	rules, err := os.ReadFile("../../../otel/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	text, err := os.ReadFile("../../../otel/dashboard.json")
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	pages, healthy, counting := scenario(t)
	last := len(pages) - 1
	alert := func(name, target string) string {
		return fmt.Sprintf("{alertname=%q,grpc_target=%q}", name, target)
	}
	alerts := []string{alert("HedgingBackendSilent", healthy), alert("HedgingResetsSpent", counting)}
	for _, tr := range troubles {
		alerts = append(alerts, alert(tr.alert, tr.target))
	}
	queries := []query{firing(last, "alertname, grpc_target", alerts...)}
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
