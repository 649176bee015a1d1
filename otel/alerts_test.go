package hedgeotel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scrapes are series of two hours, scraped each minute, in promtool's notation of values.
type scrapes struct{ strings.Builder }

func (s *scrapes) add(metric string, instance int, values, labels string) {
	fmt.Fprintf(s, "      - {series: "+
		"'grpc_client_hedge_%s{grpc_target=\"shop\",grpc_method=\"Get\",instance=\"%d\"%s}', values: '%s'}\n",
		metric, instance, labels, values)
}

// decisions adds the counters of one client: values by outcome, and by "calls" and "sent" for
// these.
func (s *scrapes) decisions(instance int, values map[string]string) {
	for outcome, v := range values {
		if outcome == "calls" || outcome == "sent" {
			s.add(outcome+"_total", instance, v, "")
		} else {
			s.add("decisions_total", instance, v, fmt.Sprintf(",grpc_hedge_outcome=%q", outcome))
		}
	}
}

// each returns a value for each minute.
func each(value func(minute int) int) string {
	return strings.Trim(fmt.Sprint(func() (all [121]int) {
		for minute := range all {
			all[minute] = value(minute)
		}
		return all
	}()), "[]")
}

// TestAlerts has promtool evaluate the alerts. None fires in healthy fleets, and each fires for its
// own trouble.
func TestAlerts(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		if os.Getenv("HEDGE_NEEDS_PROMETHEUS") != "" {
			t.Fatal("HEDGE_NEEDS_PROMETHEUS is set, and no promtool is installed")
		}
		t.Skip("no promtool is installed; on Debian: apt-get install prometheus")
	}
	rules, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	rarely := func(minutes int) string { return each(func(minute int) int { return minute / minutes }) }
	from := func(minute, value int) string { return fmt.Sprintf("0x%d %dx%d", minute, value, 119-minute) }
	var fleet, few, rare, silent scrapes
	for n := range 50 {
		fleet.decisions(n, map[string]string{"calls": "0+600x120", "sent": "0+50x120", "won": "0+25x120", "lost": "0+25x120",
			"guarded": "0+3x120", "no_budget": "0+2x120", "throttled": from(n, 4), "resets_spent": from(2*n, 5)})
		fleet.add("silent_connections", n, each(func(minute int) int { return max(0, 2-(minute+n)%50) }), "")
		few.decisions(n, map[string]string{"calls": "0+2x120", "sent": from(2*n, 1), "lost": from(2*n, 1)})
		silent.add("silent_connections", n, each(func(minute int) int { return minute / 60 * (1 - min(n, 1)) }), "")
	}
	rare.decisions(0, map[string]string{"calls": "0+60x120", "sent": rarely(15), "won": "0x120", "lost": rarely(15),
		"guarded": rarely(20), "resets_spent": rarely(20), "no_budget": rarely(10), "throttled": rarely(10)})
	one := func(values map[string]string) *scrapes {
		s := new(scrapes)
		s.decisions(0, values)
		return s
	}
	for _, tc := range []struct {
		name   string
		series *scrapes
		alert  string // "": none
		times  []int  // minutes
	}{
		{"a fleet in which some client has a short silence each minute, and each holds some hedges back", &fleet,
			"", []int{20, 60, 100}},
		{"clients of two calls a minute", &few, "", []int{20, 60, 100}},
		{"four hedged calls an hour, all lost, and some held back", &rare, "", []int{20, 60, 100}},
		{"budget", one(map[string]string{"calls": "0+600x120", "sent": "0+60x120", "no_budget": "0+300x120"}),
			"HedgingBudgetDry", []int{40, 100}},
		{"no wins", one(map[string]string{"calls": "0+600x120", "sent": "0+60x120", "won": "0+1x120",
			"lost": "0+59x120"}), "HedgingWithoutWins", []int{70}},
		{"no win at all", one(map[string]string{"calls": "0+600x120", "sent": "0+3x120", "won": "0x120",
			"lost": "0+3x120"}), "HedgingWithoutWins", []int{70}},
		{"throttle", one(map[string]string{"calls": "0+60x120", "sent": "0x120", "throttled": "0+6x120"}),
			"HedgingThrottled", []int{40}},
		{"guard", one(map[string]string{"calls": "0+600x120", "sent": "0+10x120", "guarded": "0+30x120"}),
			"HedgingGuarded", []int{40}},
		{"resets", one(map[string]string{"calls": "0+60x120", "sent": "0x120", "resets_spent": "0+1x120"}),
			"HedgingResetsSpent", []int{40}},
		{"one client of 50 has a silent backend", &silent, "HedgingBackendSilent", []int{70}},
		{"pause", one(map[string]string{"calls": "0+60x120", "paused": "0+60x120"}), "HedgingPaused", []int{70}},
		{"load", one(map[string]string{"calls": "0+600x120", "sent": "0+80x120"}), "HedgingOverBudget", []int{40}},
		{"panic", one(map[string]string{"loser_panics": from(50, 1)}), "HedgingPanics", []int{51}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var file strings.Builder
			fmt.Fprintf(&file, "rule_files: [%q]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n "+
				"   input_series:\n%s    promql_expr_test:\n", rules, tc.series.String())
			for _, at := range tc.times {
				fmt.Fprintf(&file, "      - {expr: 'count by (alertname) (ALERTS{alertstate=\"firing\"})', "+
					"eval_time: %dm, exp_samples: [", at)
				if tc.alert != "" {
					fmt.Fprintf(&file, "{labels: '{alertname=%q}', value: 1}", tc.alert)
				}
				file.WriteString("]}\n")
			}
			path := filepath.Join(t.TempDir(), "test.yml")
			if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("promtool", "test", "rules", path).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
