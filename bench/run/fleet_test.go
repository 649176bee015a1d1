package run

import (
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/longtest"
)

// smallFleet is 5 clients at 4 servers: a load, an overload, and the load again.
func smallFleet(stopsCancelled bool) workload.Workload {
	return workload.Named("fleet").Shorten().WithFleet(workload.Fleet{
		Clients: 5, Deadline: 500 * time.Millisecond, StopsCancelled: stopsCancelled,
		Steps: []workload.Step{{Name: "50%", Load: 0.5, Takes: 2 * time.Second},
			{Name: "160%", Load: 1.6, Takes: 2 * time.Second}, {Name: "50%, after it", Load: 0.5,
				Takes: 2 * time.Second}},
	})
}

// TestFleet checks the counts of a fleet, and that runs repeat exactly.
func TestFleet(t *testing.T) {
	longtest.Simulation(t)
	for _, stops := range longtest.First(1, []bool{false, true}) {
		w := smallFleet(stops)
		c := comparisonOf(t, w, w.Virtual.Calls, policy.None, policy.Adaptive, "static-50ms")
		var runs [2][]*Result
		for i := range runs {
			var err error
			if runs[i], _, err = c.Run(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		for i, r := range runs[0] {
			if err := r.Err(); err != nil {
				t.Error(err)
			}
			again := runs[1][i]
			if !slices.Equal(r.Latencies, again.Latencies) || !slices.Equal(r.busy, again.busy) ||
				!slices.Equal(r.Late, again.Late) || r.Server != again.Server {
				t.Errorf("%s: two runs with one seed differ", r.Policy.Name)
			}
			checkSteps(t, w, r)
		}
		plain, fixed := runs[0][0].Steps(w), runs[0][2].Steps(w)
		if before := plain[0]; before.Busy < 0.45 || before.Busy > 0.55 {
			t.Errorf("plain calls at a load of 50%% keep %.3f of the workers busy", before.Busy)
		}
		if more := fixed[0].Busy > plain[0].Busy; more == stops {
			t.Errorf("cancelled work stops: %v; hedges take the workers' time from %.3f to %.3f", stops,
				plain[0].Busy, fixed[0].Busy)
		}
	}
}

// checkSteps compares the steps of a fleet with the records of all calls.
func checkSteps(t *testing.T, w workload.Workload, r *Result) {
	t.Helper()
	calls, failed, hedges := 0, 0, 0
	for i, s := range r.Steps(w) {
		calls, failed, hedges = calls+len(s.Sorted), failed+s.Failed, hedges+s.Hedges
		if over := s.Load > 1; over != (s.Failed > 20) && i < 2 || over && s.Busy < 0.97 || s.Busy > 1 {
			t.Errorf("%s, %s: %d calls failed, %.3f of the workers were busy", r.Policy.Name, s.Name, s.Failed, s.Busy)
		}
		if worst := s.Sorted[len(s.Sorted)-1]; worst > w.Fleet.Deadline {
			t.Errorf("%s, %s: a call took %v", r.Policy.Name, s.Name, worst)
		}
	}
	if calls != r.Calls || failed != int(r.MissedDeadline()) || hedges > int(r.Server.Hedges) ||
		hedges < int(r.Server.Hedges)-20 {
		t.Errorf("%s: the steps have %d calls, %d failed, %d hedges; of %d, %d, %d", r.Policy.Name, calls,
			failed, hedges, r.Calls, r.MissedDeadline(), r.Server.Hedges)
	}
}

// TestFleetBudgetIsOfEachClient checks that a client which overspends is found, though the others
// spend nothing.
func TestFleetBudgetIsOfEachClient(t *testing.T) {
	longtest.Simulation(t)
	a := &arm{Comparison: &Comparison{}, policy: policy.Named(policy.Adaptive)}
	tg := &target{clients: []*client{{}, {}}}
	for n := range 6000 { // 100 calls a second, every second one of each client
		at := time.Duration(n) * 10 * time.Millisecond
		a.began, a.callers = append(a.began, at), append(a.callers, n%2)
		if n%10 == 1 { // of the second client alone: all that both may spend
			tg.hedges = append(tg.hedges, arrived{at, workload.CallID(n)})
		}
	}
	if got := a.overspent(tg); got < 250 {
		t.Errorf("overspent by %v, want about 300 less the savings", got)
	}
	a.callers = nil
	if got := a.overspent(tg); got > 0 {
		t.Errorf("taken as one client, overspent by %v", got)
	}
}
