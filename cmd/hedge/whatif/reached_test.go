package whatif_test

import (
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/cmd/hedge/whatif"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
)

// TestReached compares the prediction from a log of unhedged calls with the latencies of the same
// calls with hedging, over gRPC in virtual time and with nothing configured.
func TestReached(t *testing.T) {
	longtest.Simulation(t)
	for _, tc := range []struct {
		workload string
		// Bounds of the ratio of measured to predicted.
		p99, p999 [2]float64
	}{
		{"straggler", [2]float64{0.9, 1.1}, [2]float64{0.8, 1.25}},
		{"pareto", [2]float64{0.9, 1.1}, [2]float64{0.8, 1.25}},
		{"sizes", [2]float64{1, 1.8}, [2]float64{1, 3}}, // requests differ, and the log does not show it
	} {
		w := workload.Named(tc.workload)
		results := compared(t, w, 20_000)
		plain, hedged := results[0], results[1]
		p := predicted(t, plain.Latencies)
		t.Logf("%-9s  p99 %s: predicted %s, reached %s;  p99.9 %s: predicted %s, reached %s;  load: predicted "+
			"%.1f%%, reached %.1f%%", tc.workload,
			figure.Millis(plain.Percentile(0.99)), figure.MillisOf(p.p99), figure.Millis(hedged.Percentile(0.99)),
			figure.Millis(plain.Percentile(0.999)), figure.MillisOf(p.p999), figure.Millis(
				hedged.Percentile(0.999)), p.load, 100*hedged.ExtraLoad())
		for _, of := range []struct {
			name      string
			predicted float64
			q         float64
			bounds    [2]float64
		}{
			{name: "p99", predicted: p.p99, q: 0.99, bounds: tc.p99},
			{name: "p99.9", predicted: p.p999, q: 0.999, bounds: tc.p999},
		} {
			reached := float64(hedged.Percentile(of.q)) / float64(time.Millisecond)
			if ratio := reached / of.predicted; ratio < of.bounds[0] || ratio > of.bounds[1] {
				t.Errorf("%s: %s of %.1f ms is %.2f times the predicted %.1f ms, want %v", tc.workload, of.name,
					reached, ratio, of.predicted, of.bounds)
			}
		}
		// where requests differ, fewer hedges pay
		if reached := 100 * hedged.ExtraLoad(); reached > p.load+1 || tc.workload != "sizes" && reached < p.load-1 {
			t.Errorf("%s: load %.1f%%, predicted %.1f%%", tc.workload, reached, p.load)
		}
	}
}

// compared makes the calls of a workload without hedging and with it.
func compared(t *testing.T, w workload.Workload, calls int) []*run.Result {
	t.Helper()
	c := &run.Comparison{
		Workload: w, Policies: []policy.Policy{policy.Named(policy.None), policy.Named(policy.Adaptive)},
		Calls: calls, Concurrency: w.Virtual.Concurrency, Backends: w.Servers(), Seed: 1, Clock: workload.VirtualClock,
	}
	if w.Distribution != "" {
		distribution, err := testserver.ParseDistribution(w.Distribution)
		if err != nil {
			t.Fatal(err)
		}
		c.Distribution = distribution
	}
	results, _, err := c.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// prediction is the row of the default budget.
type prediction struct{ p99, p999, load float64 }

var rowOfDefault = regexp.MustCompile(` 10% .* ms +([\d.]+) ms +[\d.]+ +([\d.]+) ms +[\d.]+ +([\d.]+)%`)

func predicted(t *testing.T, latencies []time.Duration) prediction {
	t.Helper()
	var log, answer strings.Builder
	for _, d := range latencies {
		fmt.Fprintln(&log, d)
	}
	if err := (whatif.Question{}).Answer("log", strings.NewReader(log.String()), &answer, io.Discard); err != nil {
		t.Fatal(err)
	}
	m := rowOfDefault.FindStringSubmatch(answer.String())
	if m == nil {
		t.Fatalf("no row of 10%% in\n%s", &answer)
	}
	var x [3]float64
	for i := range x {
		var err error
		if x[i], err = strconv.ParseFloat(m[i+1], 64); err != nil {
			t.Fatal(err)
		}
	}
	return prediction{x[0], x[1], x[2]}
}

// logOf is a log of calls drawn from a distribution, one latency per line.
func logOf(name string, calls int) string {
	distribution, err := testserver.ParseDistribution(name)
	if err != nil {
		log.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var lines strings.Builder
	for range calls {
		lines.WriteString(distribution.Draw(random).String() + "\n")
	}
	return lines.String()
}

func TestDocs(t *testing.T) {
	longtest.Computation(t)
	page, err := os.ReadFile("../../../docs/whatif.md")
	if err != nil {
		t.Fatal(err)
	}
	var answer strings.Builder
	if err := (whatif.Question{}).Answer("latencies.txt", strings.NewReader(logOf("straggler", 50_000)), &answer,
		io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```text\n"+answer.String()+"```\n") {
		t.Errorf("docs/whatif.md does not show\n%s", &answer)
	}
	wrong := strings.NewReader("method,took\n/shop.Cart/Get,5\n")
	err = (whatif.Question{Field: "took"}).Answer("calls.csv", wrong, io.Discard, io.Discard)
	words := strings.Join(strings.Fields(string(page)), " ")
	if err == nil || !strings.Contains(words, "hedge: "+err.Error()+" ") {
		t.Errorf("docs/whatif.md does not show: %v", err)
	}
}

// generated is a file that makes its lines as they are read. most is the largest heap after a
// collection.
type generated struct {
	line    func(n int) string
	n, of   int
	pending []byte
	most    uint64
}

func (g *generated) Read(p []byte) (int, error) {
	for len(g.pending) == 0 {
		if g.n == g.of {
			return 0, io.EOF
		}
		if g.n%(g.of/10) == g.of/10-1 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			g.most = max(g.most, m.HeapAlloc)
		}
		g.pending = []byte(g.line(g.n))
		g.n++
	}
	n := copy(p, g.pending)
	g.pending = g.pending[n:]
	return n, nil
}

// TestMemory checks that memory does not grow with the file, whatever its format and the order of
// its lines.
func TestMemory(t *testing.T) {
	longtest.Computation(t)
	edges := []string{"+Inf", "0.1", "0.2", "0.4", "0.8"}
	const lines = 300_000
	bucket := func(series, edge int) string {
		return fmt.Sprintf("rpc_seconds_bucket{pod=\"a-pod-of-a-fleet-%d\",le=\"%s\"} 7\n", series, edges[edge])
	}
	for name, of := range map[string]struct {
		q    whatif.Question
		line func(n int) string
	}{
		"lines":           {whatif.Question{}, func(n int) string { return fmt.Sprintf("%dms\n", n%1000) }},
		"series together": {whatif.Question{}, func(n int) string { return bucket(n/len(edges), n%len(edges)) }},
		"series apart": {whatif.Question{},
			func(n int) string { return bucket(n%(lines/len(edges)), n/(lines/len(edges))) }},
		"units": {whatif.Question{}, func(n int) string {
			if n > lines-5 {
				return bucket(0, lines-n-1)
			}
			return fmt.Sprintf("# UNIT metric_%d seconds\n", n)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.GC()
			var before runtime.MemStats
			runtime.ReadMemStats(&before)
			file := &generated{line: of.line, of: lines}
			if err := of.q.Answer("calls", file, io.Discard, io.Discard); err != nil && name != "units" {
				t.Fatal(err)
			}
			if grown := int64(file.most) - int64(before.HeapAlloc); grown > 8<<20 {
				t.Errorf("%d lines take %.1f MB", lines, float64(grown)/1e6)
			}
		})
	}
}
