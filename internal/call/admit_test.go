package call_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestAdmit_ARescueTakesNoReset: the only attempt after a cut makes no loser, so it passes without a
// reset, and returns none if it is not sent.
func TestAdmit_ARescueTakesNoReset(t *testing.T) {
	s := hedgetest.Fixed(t, time.Hour, hedge.WithHedgeLimit(2, time.Hour)) // one hedge
	for n, tc := range []struct{ cut, want, dropped bool }{
		{want: true, dropped: true},
		{want: true},
		{want: false},
		{cut: true, want: true, dropped: true},
		{want: false},
	} {
		c := begin(t.Context(), s, target, method)
		var r race.State
		if tc.cut {
			r.Cause = race.Cut
		}
		e := c.Admit(1, 1, &r)
		if got := e.Kind == race.Admitted; got != tc.want {
			t.Errorf("step %d, %+v: admitted: %v", n, tc, got)
		}
		if tc.dropped {
			c.Ended(&race.State{})
		}
	}
}

// TestAdmit_RefundsTheMethodsBudget: a hedge that the target's budget does not pay takes nothing from
// the budget of its method.
func TestAdmit_RefundsTheMethodsBudget(t *testing.T) {
	s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(0)), hedge.WithMaxHedges(1),
		hedge.WithMethodOptions("/s/Own", hedge.WithBudgetPercent(1)))
	admits := func(method string) bool {
		send, _ := hedgetest.Admit(begin(t.Context(), s, target, method), 1)
		return send
	}
	if !admits("/s/Other") || admits("/s/Own") {
		t.Fatal("the target begins with one token")
	}
	for range 20 { // which earn two
		begin(t.Context(), s, target, "/s/Other")
	}
	if !admits("/s/Own") {
		t.Error("the method has no token left")
	}
}

// TestAdmit_WaitsForTheReserve has calls use up the tokens beyond the reserve. The hedge of the
// next call then waits: for an eighth of its age, or until just before its deadline is too near.
func TestAdmit_WaitsForTheReserve(t *testing.T) {
	for _, tc := range []struct{ deadline, wait time.Duration }{{0, 6 * ms}, {111 * ms, 3 * ms}} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t)
			ctx := t.Context()
			for range 60 {
				begin(ctx, s, target, method).Learner().PrimaryEnded(time.Now(), 50*ms, true)
			}
			var before []*call.Call
			for range 10 {
				before = append(before, begin(ctx, s, target, method))
			}
			if tc.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tc.deadline)
				defer cancel()
			}
			c := begin(ctx, s, target, method)
			time.Sleep(c.Plan().Due)
			for _, b := range before {
				hedgetest.Admit(b, 1)
			}
			send, wait := hedgetest.Admit(c, 1)
			if send || (wait-tc.wait).Abs() > ms {
				t.Errorf("deadline %v: sent: %v, due again after %v, want %v", tc.deadline, send, wait, tc.wait)
			}
			time.Sleep(wait)
			if send, wait := hedgetest.Admit(c, 1); send != (tc.deadline > 0) {
				t.Errorf("deadline %v: sent: %v after the wait, due again after %v", tc.deadline, send, wait)
			}
		})
	}
}

// TestAdmit_ADestinationWithoutResets: a hedge that is held back because its destination has no reset
// left takes none of its own target.
func TestAdmit_ADestinationWithoutResets(t *testing.T) {
	const there = "dns:///there"
	s := hedgetest.Fixed(t, time.Hour, hedge.WithHedgeLimit(4, time.Hour), // two hedges
		hedge.WithTargetOptions(there, hedge.WithHedgeLimit(2, time.Hour)))
	for n, tc := range []struct {
		to   string // "": the call's own target
		want bool
	}{{there, true}, {there, false}, {"", true}, {"", false}} {
		c := begin(t.Context(), s, target, method)
		c.GoElsewhere(func(int) (string, call.Conn) { return tc.to, nil }, false)
		if send, _ := hedgetest.Admit(c, 1); send != tc.want {
			t.Errorf("hedge %d, to %q: admitted: %t", n, tc.to, send)
		}
	}
}

// TestAdmit_UsesTheNewestDelay: a due first hedge waits while the newest estimate has a longer delay
// than its call.
func TestAdmit_UsesTheNewestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		record := func(n int, d time.Duration) {
			for range n {
				begin(t.Context(), s, target, method).Learner().PrimaryEnded(time.Now(), d, true)
				synctest.Wait() // for the estimate
			}
		}
		record(25, 2*ms)
		c := begin(t.Context(), s, target, method)
		if c.Plan().Due > 3*ms {
			t.Fatalf("the first hedge is due after %v, want 2 ms", c.Plan().Due)
		}
		record(60, 50*ms)
		time.Sleep(c.Plan().Due)
		send, wait := hedgetest.Admit(c, 1)
		if send || wait < 40*ms || wait > 50*ms {
			t.Fatalf("sent: %v, due again after %v, want after 48 ms", send, wait)
		}
		time.Sleep(wait)
		if send, wait := hedgetest.Admit(c, 1); !send {
			t.Errorf("not sent after the newest delay, due again after %v", wait)
		}
	})
}
