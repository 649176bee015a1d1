package workload

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge/bench/policy"
)

// TestTrueQuantile checks the true quantile that pictures show beside a learned delay.
func TestTrueQuantile(t *testing.T) {
	shift, outage := Named("shift"), Named("outage")
	const run = 90 * time.Second
	base := shift.TrueQuantile(0.90, time.Second, run)
	if base < 8*time.Millisecond || base > 10*time.Millisecond {
		t.Errorf("the p90 of stragglers is %v", base)
	}
	if got := shift.TrueQuantile(0.90, 45*time.Second, run); got < 4*base-4 || got > 4*base+4 {
		t.Errorf("the p90 of stragglers four times as slow is %v, that of others %v", got, base)
	}
	if got := outage.TrueQuantile(0.90, 45*time.Second, run); got != base+time.Second {
		t.Errorf("the p90 of stragglers 1 s slower is %v", got)
	}
	if got := outage.TrueQuantile(0.90, 61*time.Second, run); got != base {
		t.Errorf("after the outage the p90 is %v", got)
	}
}

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
