package hedgeotel_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	hedgeotel "github.com/grpchedge/hedge/otel"
	"github.com/grpchedge/hedge/stats"
)

func TestNew_MaxMethods(t *testing.T) {
	if _, err := hedgeotel.New(hedgeotel.Options{MaxMethods: -1}); err == nil || !strings.HasPrefix(err.Error(), "hedge: hedgeotel.Options.MaxMethods: value -1, allowed") {
		t.Error(err)
	}
}

// TestOutcomes_HaveEveryCount compares the outcomes with the counts that there are: those that are no decision are named here.
func TestOutcomes_HaveEveryCount(t *testing.T) {
	others := []string{"Calls", "Hedged", "Hedges", "SameBackend", "Repeated", "PassedThrough", "PoorAnswers", "InvalidCosts", "LoserPanics", "TriggerPanics"}
	if got := reflect.TypeFor[stats.Counts]().NumField(); got != len(hedgeotel.Outcomes())+len(others) {
		t.Errorf("stats.Counts has %d counts, there are %d outcomes and %v", got, len(hedgeotel.Outcomes()), others)
	}
	if names := hedgeotel.Outcomes(); len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
		t.Errorf("%v", names)
	}
}
