// Package examples_test runs every example as a user does.
package examples_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// hedged is the line of an example that compares calls without and with hedging.
const hedged = `Extra load: \d+\.\d%\. [1-9]\d* hedges were sent, \d+ answered first\.`

// outputs has, for each example, a line that shows that hedges did what the example is about.
var outputs = map[string]string{
	"hello": hedged, "tokens": hedged, "http": hedged, "serviceconfig": hedged, "providers": hedged,
	"otherbackend": `hedges to another backend\s+\d\S*s\s+\d\S*s\s+\d+\.\d%`,
	"regions":      `\s+hedges to us\s+\d\S*s\s+\d\S*s\s+0\s+100%`,
	"proxy":        `\s+hedged calls\s+[1-9]\d*, by [1-9]\d* hedges`, // of either table of the debug page
	"config":       `The file has a mistake, so the options stay: 0 hedges in 400 calls\.`,
	"prometheus":   `hedge_won_total\{method="shop.Catalog/Get",target="dns:///shop:443"\} [1-9]\d*`,
	"production":   `grpc_client_hedge_sent_total [1-9]\d*`,
	"shed":         `busy\s+\d\S*s\s+\d\S*s\s+\d+\s+\d+\s+0`,
}

// TestExamplesRun runs every example by the command that its first comment gives.
func TestExamplesRun(t *testing.T) {
	if files, err := filepath.Glob("*/*.go"); err != nil || len(files) != len(outputs) {
		t.Errorf("the files %v, %v; want one for each of %d examples", files, err, len(outputs))
	}
	for name, line := range outputs {
		t.Run(name, func(t *testing.T) {
			output, err := exec.CommandContext(t.Context(), "go", "run", "./"+name).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
			if !regexp.MustCompile(`(?m)^` + line + `\s*$`).Match(output) {
				t.Errorf("no line like %q in\n%s", line, output)
			}
		})
	}
}
