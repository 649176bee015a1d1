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
)

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

// evaluate has promtool evaluate rules and queries. Without one the test is skipped, or fails if
// HEDGE_NEEDS_PROMETHEUS is set.
func (in input) evaluate(t *testing.T, rules string, queries ...query) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		if os.Getenv("HEDGE_NEEDS_PROMETHEUS") != "" {
			t.Fatal("HEDGE_NEEDS_PROMETHEUS is set, and no promtool is installed")
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
		t.Errorf("%v\n%s", err, out)
	}
}
