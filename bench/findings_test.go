package main

import (
	"errors"
	"strings"
	"testing"
)

// TestResultErr checks what fails a run: a wrong reply, a failed call and a broken budget, but not a peer's.
func TestResultErr(t *testing.T) {
	for _, tc := range []struct {
		policy string
		r      result
		want   string
	}{
		{adaptive, result{}, ""},
		{adaptive, result{wrong: 1, firstErr: errors.New("odd")}, "adaptive: 0 failed calls, 1 wrong replies; the first: odd"},
		{adaptive, result{failed: 2, firstErr: errors.New("odd")}, "adaptive: 2 failed calls, 0 wrong replies"},
		{adaptive, result{overspent: 3}, "adaptive: over some time of 10s or longer 3.0 hedges more than 10% of the calls and the burst"},
		{"failsafe-go", result{wrong: 1, failed: 1, firstErr: errors.New("odd")}, ""},
	} {
		r := tc.r
		r.policy = policyNamed(tc.policy)
		f := &findings{workload: workloadNamed("straggler"), seed: 9, runs: []clockRun{{clock: virtualClock, results: []*result{&r}}}}
		switch err := f.err(); {
		case tc.want == "" && err != nil, tc.want != "" && (err == nil || !strings.Contains(err.Error(), "straggler, virtual time, seed 9: "+tc.want)):
			t.Errorf("%s, %+v: %v, want %q", tc.policy, tc.r, err, tc.want)
		}
	}
}
