package report

import (
	"errors"
	"strings"
	"testing"

	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/bench/workload"
)

// TestResultErr checks what fails a run: a wrong reply, a failed call and a broken budget, but none
// of a peer.
func TestResultErr(t *testing.T) {
	for _, tc := range []struct {
		policy string
		r      run.Result
		want   string
	}{
		{policy.Adaptive, run.Result{}, ""},
		{policy.Adaptive, run.Result{Wrong: 1, FirstErr: errors.New("odd")},
			"adaptive: 0 failed calls, 1 wrong replies; the first: odd"},
		{policy.Adaptive, run.Result{Failed: 2, FirstErr: errors.New("odd")}, "adaptive: 2 failed calls, 0 wrong replies"},
		{policy.Adaptive, run.Result{Overspent: 3},
			"adaptive: over some time of 10s or longer 3.0 hedges more than 10% of the calls and what was saved"},
		{"failsafe-go", run.Result{Wrong: 1, Failed: 1, FirstErr: errors.New("odd")}, ""},
	} {
		r := tc.r
		r.Policy = policy.Named(tc.policy)
		f := &findings{workload: workload.Named("straggler"), seed: 9,
			runs: []clockRun{{clock: workload.VirtualClock, results: []*run.Result{&r}}}}
		switch err := f.err(); {
		case tc.want == "" && err != nil, tc.want != "" &&
			(err == nil || !strings.Contains(err.Error(), "straggler, virtual time, seed 9: "+tc.want)):
			t.Errorf("%s, %+v: %v, want %q", tc.policy, tc.r, err, tc.want)
		}
	}
}
