package report

import (
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/testserver"
)

// TestAgreement checks what counts as agreement, and that only calls made by both clocks are
// compared.
func TestAgreement(t *testing.T) {
	taking := func(c workload.Clock, ms ...float64) clockRun {
		r := &run.Result{Policy: policy.Named(policy.None), Calls: len(ms),
			Server: testserver.Counts{Attempts: int64(len(ms))}}
		for _, x := range ms {
			r.Latencies = append(r.Latencies, time.Duration(x*1e6))
		}
		return clockRun{clock: c, results: []*run.Result{r}}
	}
	for _, tc := range []struct {
		name  string
		real  []float64
		apart string
	}{
		{"the same", []float64{2, 10, 100}, ""},
		{"what a socket takes", []float64{2.15, 10.15, 100.15}, ""},
		{"4%", []float64{2, 10, 104}, ""},
		{"6%", []float64{2, 10.6, 100}, "p50"},
		{"only the last", []float64{2, 10, 94}, "p90 p95 p99 p99.9"},
	} {
		got := agreements([]clockRun{taking(workload.RealClock, tc.real...), taking(workload.VirtualClock, 2, 10, 100, 7777)})
		if len(got) != 1 || strings.Join(got[0].apart(), " ") != tc.apart {
			t.Errorf("%s: %+v, want apart %q", tc.name, got, tc.apart)
		}
	}
	if agreementSheet(agreements([]clockRun{taking(workload.VirtualClock, 1)})) != nil {
		t.Error("one clock agrees with itself")
	}
}
