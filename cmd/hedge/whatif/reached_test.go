package whatif_test

import (
	"fmt"
	"io"
	"regexp"
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
