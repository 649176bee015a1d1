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

func TestDemo(t *testing.T) {
	longtest.Computation(t)
	path := filepath.Join(t.TempDir(), "demo.png")
	var stdout, stderr bytes.Buffer
	args := []string{"demo", "-calls", "400", "-streams", "300", "-concurrency", "20", "-distribution",
		"straggler:10%,8", "-hedges", "1", "-budget", "20", "-picture", path}
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, &stdout, &stderr)
	}
	scenes := strings.SplitAfter(stdout.String(), "\n\n300 token streams of 4 messages, ")
	if len(scenes) != 2 {
		t.Fatalf("not two scenes:\n%s", &stdout)
	}
	for i, lines := range [][]string{{`failed calls +0 +0`}, {`failed streams +0 +0`}} {
		checkScene(t, scenes[i], lines)
	}
	for _, text := range []string{`distribution "ttft", seed 1.`,
		"(budget 30%, at most 3 hedges, then the flags)", "time to first message",
		"\nAll 2,400 tokens arrived intact and in order, those of each stream from one attempt.\n"} {
		if !strings.Contains(scenes[1], text) || strings.Contains(scenes[0], text) {
			t.Errorf("%q is not in the second scene alone:\n%s", text, &stdout)
		}
	}
	if !strings.Contains(stdout.String(), path) {
		t.Errorf("the path of the picture is not told:\n%s", &stdout)
	}
	if strings.ContainsAny(stdout.String()+stderr.String(), "\r\x1b") {
		t.Errorf("control characters in an output that is no terminal:\n%q\n%q", &stdout, &stderr)
	}
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		t.Errorf("no picture: %v", err)
	}
}

// checkScene checks the lines that the tables of all scenes have, and the given ones.
func checkScene(t *testing.T, scene string, lines []string) {
	t.Helper()
	for _, line := range append(lines,
		`p50 +[\d.]+ ms +[\d.]+ ms +\d\.\d{3}`,
		`p90 +[\d.]+ ms`, `p95 +[\d.]+ ms`, `p99 +[\d.]+ ms`, `p99\.9 +[\d.]+ ms`,
		`extra load, at the server +0\.0% +\d+\.\d%`,
		`hedges sent +[1-9]\d*`, `  and won +\d+`,
		`cancelled at the server +0 +\d+`,
		`learned delay +[\d.]+ ms`,
		`wrong replies +0 +0`,
	) {
		if !regexp.MustCompile(`(?m)^ ` + line).MatchString(scene) {
			t.Errorf("no line like %q in\n%s", line, scene)
		}
	}
}
