// Package examples_test runs every example as a user does.
package examples_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// duration matches a latency as the examples print it.
const duration = `\d[\d.]*(µs|ms|s)`

// twoRows matches a table of calls without and with hedging.
func twoRows() []string {
	return []string{
		`without hedging\s+` + duration + `\s+` + duration,
		`with hedging\s+` + duration + `\s+` + duration,
		`Extra load: \d+\.\d%\. [1-9]\d* hedges were sent, \d+ answered first\.`,
	}
}

// outputs has, for each example, what every row of a table and every line of a summary looks like.
var outputs = map[string][]string{
	"hello":         twoRows(),
	"tokens":        twoRows(),
	"http":          twoRows(),
	"serviceconfig": twoRows(),
	"otherbackend": {
		`without hedging\s+` + duration + `\s+` + duration + `\s+0\.0%`,
		`hedges by round_robin\s+` + duration + `\s+` + duration + `\s+\d+\.\d%`,
		`hedges to another backend\s+` + duration + `\s+` + duration + `\s+\d+\.\d%`,
	},
	"regions": {
		`eu stalls\s+without hedging\s+` + duration + `\s+` + duration + `\s+0\s+0%`,
		`\s+hedges to us\s+` + duration + `\s+` + duration + `\s+0\s+\d+%`,
		`eu is down\s+without hedging\s+-\s+-\s+500\s+0%`,
		`\s+hedges to us\s+` + duration + `\s+` + duration + `\s+0\s+100%`,
	},
	"providers": {
		`alpha alone\s+` + duration + `\s+` + duration + `\s+[1-9]\d*\s+0`,
		`alpha, hedges to beta\s+` + duration + `\s+` + duration + `\s+\d+\s+[1-9]\d*`,
		`Extra load: \d+\.\d%\. [1-9]\d* hedges were sent, \d+ answered first\.`,
	},
	"proxy": {
		`gRPC, directly\s+` + duration + `\s+` + duration,
		`gRPC, through the proxy\s+` + duration + `\s+` + duration,
		`HTTP, directly\s+` + duration + `\s+` + duration,
		`HTTP, through the proxy\s+` + duration + `\s+` + duration,
		`\s+hedged calls\s+[1-9]\d*, by [1-9]\d* hedges`, // of either table of the debug page
	},
	"config": {
		`The file allows a budget of 10%: [1-9]\d* hedges in 400 calls\.`,
		`The file switches the method off: 0 hedges in 400 calls\.`,
		`hedge: config: WithBudgetPercent\(1000\): must be 0 to 400`,
		`The file has a mistake, so the options stay: 0 hedges in 400 calls\.`,
	},
	"prometheus": {
		`hedge_calls_total\{method="shop.Catalog/Get",target="dns:///shop:443"\} 1000`,
		`hedge_delay_seconds\{method="shop.Catalog/Get",target="dns:///shop:443"\} 0\.0\d+`,
		`hedge_no_budget_total\{method="shop.Catalog/Get",target="dns:///shop:443"\} \d+`,
		`hedge_p99_seconds\{method="shop.Catalog/Get",target="dns:///shop:443"\} 0\.0\d+`,
		`hedge_sent_total\{method="shop.Catalog/Get",target="dns:///shop:443"\} [1-9]\d*`,
		`hedge_won_total\{method="shop.Catalog/Get",target="dns:///shop:443"\} [1-9]\d*`,
	},
	"production": {
		`a mistake\s+800\s+` + duration + `\s+` + duration + `\s+0s\s+0\s+0`,
		`dry run\s+800\s+` + duration + `\s+` + duration + `\s+` + duration + `\s+0\s+[1-9]\d*`,
		`control 99\s+800\s+` + duration + `\s+` + duration + `\s+` + duration + `\s+\d+\s+0`,
		`control 0\s+800\s+` + duration + `\s+` + duration + `\s+` + duration + `\s+[1-9]\d*\s+0`,
		`paused\s+800\s+` + duration + `\s+` + duration + `\s+` + duration + `\s+0\s+0`,
		`4000 calls in the log, [1-9]\d* retries\.`,
		`grpc_client_call_duration_seconds_count 4000`, // what callers saw: hedges and retries are inside
		`grpc_client_attempt_duration_seconds_count 4[0-3]\d\d`,
		`grpc_client_hedge_calls_total 40\d\d`,
		`grpc_client_hedge_sent_total [1-9]\d*`,
		`Hedging is PAUSED\.`,
	},
	"shed": {
		`idle\s+` + duration + `\s+` + duration + `\s+\d+\s+\d+\s+0`,
		`busy\s+` + duration + `\s+` + duration + `\s+\d+\s+\d+\s+0`,
	},
}

// TestExamplesRun runs every example by the command that its first comment gives.
func TestExamplesRun(t *testing.T) {
	if files, err := filepath.Glob("*/*.go"); err != nil || len(files) != len(outputs) {
		t.Errorf("the files %v, %v; want one for each of %d examples", files, err, len(outputs))
	}
	for name, lines := range outputs {
		t.Run(name, func(t *testing.T) {
			output, err := exec.CommandContext(t.Context(), "go", "run", "./"+name).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			for _, line := range lines {
				if !regexp.MustCompile(`(?m)^` + line + `\s*$`).Match(output) {
					t.Errorf("no line like %q in\n%s", line, output)
				}
			}
		})
	}
}
