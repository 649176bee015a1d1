package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/grpchedge/hedge/internal/longtest"
)

// runTiny runs the command with few calls and returns its output.
func runTiny(t *testing.T, args string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != 0 {
		t.Fatalf("bench %s: exit code %d\n%s\n%s", args, code, &stdout, &stderr)
	}
	if strings.ContainsAny(stdout.String()+stderr.String(), "\r\x1b") {
		t.Errorf("control characters in an output that is not a terminal:\n%q\n%q", &stdout, &stderr)
	}
	return stdout.String()
}

// wantLines requires a line that begins like each of the regular expressions.
func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !regexp.MustCompile(`(?m)^ ?` + line).MatchString(text) {
			t.Errorf("no line like %q in\n%s", line, text)
		}
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil || len(b) == 0 {
		t.Errorf("%s is empty: %v", filepath.Join(path...), err)
	}
	return string(b)
}

// TestCompare runs one workload by both clocks and checks the table, the files and the agreement of
// the clocks.
func TestCompare(t *testing.T) {
	longtest.Computation(t)
	folder := t.TempDir()
	printed := runTiny(t, "compare -workload straggler -policy none,adaptive,static-10ms -calls 300 -seed 7 -out "+folder)
	wantLines(t, printed,
		`oracle, two hedges, 10% +published +4\.8 ms +8\.7 ms +12\.2 ms +16\.1 ms +23\.8 ms +8\.9%`,
		`none +loopback( +[\d.]+ ms){5} +0\.0% +0 +0 +0 +0 +0 +300 +7`,
		`adaptive +virtual time( +[\d.]+ ms){5} +\d+\.\d% +\d+ +\d+ +\d+ +0 +0 +300 +7`,
		`static-10ms( +\d+\.\d{3}){5} +[+-]\d+\.\d% +(yes|not in p.*|not in extra load)`)
	wantLines(t, read(t, folder, "straggler.csv"), `policy,measured,p50_ms,p90_ms,p95_ms,p99_ms,p99\.9_ms,extra_load,`+
		`hedges,won,cancelled,wrong,failed,calls,seed\n(.*(,[\d.]+){13}\n){6}$`)
	wantLines(t, read(t, folder, "straggler.md"), "## straggler\n",
		`\| policy \| measured \| p50 \| p90 \| p95 \| p99 \| p99.9 \| extra load \|`, `\| none \| loopback \|`,
		`.*\]\(straggler.png\)`)
	for _, name := range []string{"straggler.png", "straggler-load.png", "straggler-clocks.csv"} {
		read(t, folder, name)
	}
}

func TestDemo(t *testing.T) {
	longtest.Computation(t)
	path := filepath.Join(t.TempDir(), "demo.png")
	printed := runTiny(t, "demo -calls 400 -streams 300 -concurrency 20 -distribution straggler:10%,8 -hedges 1 "+
		"-budget 20 -picture "+path)
	calls, streams, _ := strings.Cut(printed, "\n\n300 token streams of 4 messages, ")
	for noun, scene := range map[string]string{"calls": calls, "streams": streams} {
		wantLines(t, scene, "failed "+noun+` +0 +0`, `p50 +[\d.]+ ms +[\d.]+ ms +\d\.\d{3}`, `p99\.9 +[\d.]+ ms`,
			`extra load, at the server +0\.0% +\d+\.\d%`, `hedges sent +[1-9]\d*`, `  and won +\d+`,
			`cancelled at the server +0 +\d+`, `learned delay +[\d.]+ ms`, `wrong replies +0 +0`)
	}
	wantLines(t, streams, `.*distribution "ttft", seed 1\.`, `.*\(budget 30%, at most 3 hedges, then the flags\)`,
		"All 2,400 tokens arrived intact and in order, those of each stream from one attempt\\.", ".*"+path)
	read(t, path)
}
