package workload

import (
	"testing"

	"github.com/grpchedge/hedge/bench/policy"
)

// TestTable checks that every policy that a workload names exists, and that every workload has a
// size and a short form.
func TestTable(t *testing.T) {
	for _, w := range All {
		for _, name := range append(w.Policies, w.RealPolicies...) {
			policy.Named(name)
		}
		if w.Policies[0] != policy.None {
			t.Errorf("%s is not compared with none", w.Name)
		}
		if w.Virtual.Calls == 0 {
			t.Errorf("%s has no size", w.Name)
		}
		most := shortVirtual
		if w.Fleet != nil {
			most *= 4
		}
		if s := w.Shorten(); s.Virtual.Calls > most || s.Real.Calls > shortReal {
			t.Errorf("%s is not short: %+v", w.Name, s.Virtual)
		}
	}
}
