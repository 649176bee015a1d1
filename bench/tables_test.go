package main

import "testing"

// TestTables checks that every name in the tables of workloads and policies is one that there is.
func TestTables(t *testing.T) {
	for _, w := range workloads {
		for _, name := range append(w.policies, w.realPolicies...) {
			policyNamed(name)
		}
		if w.policies[0] != none {
			t.Errorf("%s is not compared with none", w.name)
		}
		if w.virtual.calls == 0 {
			t.Errorf("%s has no size", w.name)
		}
		if s := w.shorten(); s.virtual.calls > shortVirtual || s.real.calls > shortReal {
			t.Errorf("%s is not short: %+v", w.name, s.virtual)
		}
	}
	for name := range publishedFigures {
		workloadNamed(name)
	}
}
