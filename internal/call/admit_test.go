package call_test

import (
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestAdmit_OnlyHope: the guard does not hold back the only hope of a call, which has no other
// attempt in flight.
func TestAdmit_OnlyHope(t *testing.T) {
	failed := race.AttemptReport{HasEnded: true, End: race.NonFatal}
	for _, tc := range []struct {
		attempts [2]race.AttemptReport
		n        int
		want     bool
	}{
		{n: 1},
		{[2]race.AttemptReport{failed}, 1, true},
		{[2]race.AttemptReport{failed}, 2, false}, // the first hedge is in flight
		{[2]race.AttemptReport{failed, failed}, 2, true},
		{[2]race.AttemptReport{{HasEnded: true, End: race.RejectedStatus}}, 1, false},
	} {
		var r race.Report
		copy(r.Attempts[:], tc.attempts[:])
		if got := call.IsOnlyHope(&r, tc.n); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// TestAdmit_RepetitionTakesNoReset: a hedge that sends a call again has no loser, so it passes
// without a reset, and returns none if it is not sent.
func TestAdmit_RepetitionTakesNoReset(t *testing.T) {
	s := hedgetest.Fixed(t, time.Hour, hedge.WithResetLimit(2, time.Hour)) // one hedge
	for n, tc := range []struct{ repeated, want, dropped bool }{
		{want: true, dropped: true},
		{want: true},
		{want: false},
		{repeated: true, want: true, dropped: true},
		{want: false},
	} {
		c := call.Begin((*registry.Registry)(s), t.Context(), target, method, nil)
		e := c.Admit(1, 1, &race.Report{Repeated: tc.repeated})
		if got := e.Kind == race.Admitted; got != tc.want {
			t.Errorf("step %d, %+v: admitted: %v", n, tc, got)
		}
		if tc.dropped {
			c.Book(&race.Report{Dropped: 1})
		}
	}
}

// TestAdmit_PaysBackTheOwnBudget: a hedge that the target's budget does not pay takes nothing from
// the budget of its method.
func TestAdmit_PaysBackTheOwnBudget(t *testing.T) {
	s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(0)), hedge.WithMaxHedges(1),
		hedge.WithMethodOptions("/s/Own", hedge.WithBudgetPercent(1)))
	admits := func(method string) bool {
		c := call.Begin((*registry.Registry)(s), t.Context(), target, method, nil)
		send, _ := hedgetest.Admit(&c, 1)
		return send
	}
	if !admits("/s/Other") || admits("/s/Own") {
		t.Fatal("the target begins with one token")
	}
	for range 20 { // which earn two
		call.Begin((*registry.Registry)(s), t.Context(), target, "/s/Other", nil)
	}
	if !admits("/s/Own") {
		t.Error("the method has no token left")
	}
}
