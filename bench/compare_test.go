package main

import (
	"bytes"
	"encoding/csv"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/grpchedge/hedge/internal/longtest"
)

// compareTiny runs the command with few calls and returns its output.
func compareTiny(t *testing.T, args string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != 0 {
		t.Fatalf("bench %s: exit code %d\n%s\n%s", args, code, &stdout, &stderr)
	}
	return stdout.String()
}

// TestCompare runs one workload by both clocks and checks the table, the files and the agreement of
// the clocks.
func TestCompare(t *testing.T) {
	longtest.Computation(t)
	folder := t.TempDir()
	printed := compareTiny(t,
		"compare -workload straggler -policy none,adaptive,static-10ms -calls 300 -seed 7 -out "+folder)
	for _, line := range []string{
		`oracle, two hedges, 10% +published +4\.8 ms +8\.7 ms +12\.2 ms +16\.1 ms +23\.8 ms +8\.9%`,
		`none +loopback( +[\d.]+ ms){5} +0\.0% +0 +0 +0 +0 +0 +300 +7`,
		`adaptive +virtual time( +[\d.]+ ms){5} +\d+\.\d% +\d+ +\d+ +\d+ +0 +0 +300 +7`,
		`static-10ms( +\d+\.\d{3}){5} +[+-]\d+\.\d% +(yes|not in p.*|not in extra load)`,
	} {
		if !regexp.MustCompile(`(?m)^ ` + line + ` *$`).MatchString(printed) {
			t.Errorf("no line like %q in\n%s", line, printed)
		}
	}
	file, err := os.Open(filepath.Join(folder, "straggler.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	const header = "policy,measured,p50_ms,p90_ms,p95_ms,p99_ms,p99.9_ms,extra_load,hedges,won,cancelled," +
		"wrong,failed,calls,seed"
	if len(rows) != 1+2*3 || strings.Join(rows[0], ",") != header {
		t.Errorf("the CSV is %v", rows)
	}
	for _, row := range rows[1:] {
		for _, figure := range row[2:] {
			if _, err := strconv.ParseFloat(figure, 64); err != nil {
				t.Errorf("%v: %v", row, err)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(folder, "straggler.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"## straggler\n",
		"| policy | measured | p50 | p90 | p95 | p99 | p99.9 | extra load |", "| none | loopback |", "](straggler.png)"} {
		if !strings.Contains(string(page), text) {
			t.Errorf("the page does not say %q:\n%s", text, page)
		}
	}
	for _, name := range []string{"straggler.png", "straggler-load.png", "straggler-clocks.csv"} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCompareRepeats checks that two runs in virtual time with one seed write identical files.
func TestCompareRepeats(t *testing.T) {
	longtest.Computation(t)
	folders := [2]string{t.TempDir(), t.TempDir()}
	for _, folder := range folders {
		compareTiny(t, "compare -clock virtual -workload outage,saturated,mixed,stalls,bursts -policy "+
			"none,adaptive -calls 600 -out "+folder)
	}
	files, err := filepath.Glob(filepath.Join(folders[0], "*"))
	if err != nil || len(files) < 15 {
		t.Fatalf("only %d files, %v", len(files), err)
	}
	took := regexp.MustCompile(`it took [^;.]*\.?[^;.]*\.\n`)
	for _, path := range files {
		first, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		again, err := os.ReadFile(filepath.Join(folders[1], filepath.Base(path)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(took.ReplaceAll(first, nil), took.ReplaceAll(again, nil)) {
			t.Errorf("%s differs from run to run", filepath.Base(path))
		}
	}
}

// TestReport runs some workloads in short and checks the index, the summary and the weak spots.
func TestReport(t *testing.T) {
	longtest.Computation(t)
	folder := t.TempDir()
	printed := compareTiny(t,
		"report -short -clock virtual -calls 400 -workload straggler,correlated,saturated,shift,sizes,bursts "+
			"-policy none,static-10ms,adaptive -out "+folder)
	if !regexp.MustCompile(`(?m)^ static-10ms +saturated +70% load +p50 +\d+\.\d{3} .* slower`).MatchString(printed) {
		t.Errorf("hedging everything at a saturated backend is no weak spot:\n%s", printed)
	}
	index, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"| [correlated](correlated.md) | one request in ten is slow on every backend | `make bench " +
			"BENCH_FLAGS=\"-workload correlated\"` |", "(saturated.md)", "(shift.md)", "## Weak spots",
		"| adaptive | this library", "This was a short run"} {
		if !strings.Contains(string(index), text) {
			t.Errorf("the index does not say %q:\n%s", text, index)
		}
	}
	summary, err := os.ReadFile(filepath.Join(folder, "SUMMARY.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"](docs/results/overview.png)\n\n| workload ", "| correlated |",
		"| [correlated](docs/results/correlated.md) | one request in ten is slow on every backend |",
		"### Where something else is better\n", "### Weak spots\n"} {
		if !strings.Contains(string(summary), text) {
			t.Errorf("the summary does not say %q:\n%s", text, summary)
		}
	}
	if rows := regexp.MustCompile(
		`(?m)^\| (\w+) \| [\d.]+ ms \| [\d.]+ \| [\d.]+% \| (–|[\d.]+ ms) \|.*\| – \| – \|$`).FindAllString(
		string(summary), -1); len(rows) != 6 {
		t.Errorf("the overview shows %d workloads, want 6 without the peer, which did not run:\n%s", len(rows), summary)
	}
	if _, err := os.Stat(filepath.Join(folder, "bursts-time.png")); !os.IsNotExist(err) {
		t.Errorf("the course of bursts, most seconds of which have no call: %v", err)
	}
	for _, name := range []string{"overview.png", "overview.csv", "sizes-time.png", "shift-time.png",
		"shift-time.csv", "weak-spots.csv", "saturated-parts.csv"} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
