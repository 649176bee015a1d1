package hedgeotel

import (
	"strings"
	"testing"
)

// TestOutcomes has the names that dashboards and alerts use. A new count has one, and a count that
// is renamed fails here.
func TestOutcomes(t *testing.T) {
	const want = "won lost turned_away failed_hedged control control_failed same_backend received failovers " +
		"unknown_option learning no_budget not_drawn not_ready deadline_near paused of_hedge off not_selected " +
		"no_descriptor throttled guarded pushed_back not_replayable resets_spent client_busy dry_run " +
		"early_headers passed_through second_request rejected " +
		"loser_panics trigger_panics"
	if got := strings.Join(outcomes[:], " "); strings.Join(strings.Fields(got), " ") != want {
		t.Errorf("the outcomes are %v, want %v", got, want)
	}
}
