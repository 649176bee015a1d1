package report

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/workload"
)

// TestBySteps checks the table of a fleet: a row for each step and policy, and the recovery beside
// the overload.
func TestBySteps(t *testing.T) {
	w := workload.Named("fleet").Shorten().WithFleet(workload.Fleet{Clients: 3, Deadline: 300 * time.Millisecond,
		Steps: []workload.Step{
			{Name: workload.Before, Load: 0.3, Takes: time.Second}, {Name: workload.Overload, Load: 1.5,
				Takes: time.Second}, {Name: "30%, after it", Load: 0.3, Takes: 5 * time.Second}}})
	s := study{workload: w, policies: []string{policy.None, policy.Adaptive},
		clocks: []workload.Clock{workload.VirtualClock}, seed: 1}
	f, err := s.run(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(f.bySteps().CSV()), "\n")
	if len(rows) != 1+3*2 || rows[0] != "step,policy,p50_ms,p99_ms,p99.9_ms,failed,extra_load,busy,well_again_s" {
		t.Fatalf("%d rows:\n%s", len(rows), strings.Join(rows, "\n"))
	}
	for i, row := range rows[1:] {
		recovery := row[strings.LastIndex(row, ",")+1:]
		if overload := i/2 == 1; overload != (recovery != "") {
			t.Errorf("the recovery is %q in %s", recovery, row)
		}
	}
	if !strings.Contains(f.markdown(), "Well again is") {
		t.Error("the page does not say what well again is")
	}
}
