package run

import (
	"testing"

	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/longtest"
)

// TestSecondDestination checks that calls that fail at the first destination, in the last third of a
// run, are answered by the second one where a policy uses it, and count as failed elsewhere.
func TestSecondDestination(t *testing.T) {
	longtest.Simulation(t)
	policies := []string{"none", "retry", "adaptive", "elsewhere"}
	if !longtest.Race { // the peer's hedges write to one reply
		policies = append(policies, "failsafe-go-fallback")
	}
	c := comparisonOf(t, workload.Named("regions"), 1500, policies...)
	results, _, err := c.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if err := r.Err(); err != nil {
			t.Error(err)
		}
		uses := r.Policy.To != nil
		if failed := r.MissedDeadline(); uses != (failed == 0) || !uses && (failed < 450 || failed > 550) {
			t.Errorf("%s: %d of 1,500 calls failed, want none if it uses the second destination, and a third otherwise",
				r.Policy.Name, failed)
		}
		if slowest := r.Percentile(1); uses != (slowest < workload.FailedTakes) {
			t.Errorf("%s: the slowest call took %v, want %v if a call failed", r.Policy.Name, slowest, workload.FailedTakes)
		}
	}
}
