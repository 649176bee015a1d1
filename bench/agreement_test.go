package main

import (
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
)

// TestAgreement checks what counts as agreement, and that only what both clocks saw is compared.
func TestAgreement(t *testing.T) {
	taking := func(c clock, ms ...float64) clockRun {
		r := &result{policy: policyNamed(none), calls: len(ms), server: testserver.Counts{Attempts: int64(len(ms))}}
		for _, x := range ms {
			r.latencies = append(r.latencies, time.Duration(x*1e6))
		}
		return clockRun{clock: c, results: []*result{r}}
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
		got := agreements([]clockRun{taking(realClock, tc.real...), taking(virtualClock, 2, 10, 100, 7777)})
		if len(got) != 1 || strings.Join(got[0].apart(), " ") != tc.apart {
			t.Errorf("%s: %+v, want apart %q", tc.name, got, tc.apart)
		}
	}
	if agreementSheet(agreements([]clockRun{taking(virtualClock, 1)})) != nil {
		t.Error("one clock agrees with itself")
	}
}
