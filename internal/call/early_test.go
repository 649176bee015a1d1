package call_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestAdmit_WaitsForTheReserve has calls use up the tokens beyond the reserve. The hedge of the next
// call then waits: for an eighth of its age, or until just before its deadline is too near.
func TestAdmit_WaitsForTheReserve(t *testing.T) {
	for _, tc := range []struct{ deadline, wait time.Duration }{{0, 6 * ms}, {111 * ms, 3 * ms}} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t)
			ctx := t.Context()
			begin := func() *call.Call {
				c := call.Begin((*registry.Registry)(s), ctx, target, method, nil)
				return &c
			}
			for range 60 {
				begin().Learner().PrimaryEnded(time.Now(), 50*ms, true)
			}
			var before []*call.Call
			for range 10 {
				before = append(before, begin())
			}
			if tc.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tc.deadline)
				defer cancel()
			}
			c := begin()
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

// A due hedge goes by the latencies that were learned since its call began: the delay that the call was
// given came from the fastest calls of a burst.
func TestAdmit_GoesByTheNewestEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		begin := func() *call.Call {
			c := call.Begin((*registry.Registry)(s), t.Context(), target, method, nil)
			return &c
		}
		record := func(n int, d time.Duration) {
			for range n {
				begin().Learner().PrimaryEnded(time.Now(), d, true)
			}
		}
		record(25, 2*ms)
		c, again := begin(), begin()
		plan, ok := c.Plan(), c.Hedged()
		if !ok || plan.Due > 3*ms {
			t.Fatalf("due after %v, %v", plan.Due, ok)
		}
		record(60, 50*ms)
		time.Sleep(plan.Due)
		send, wait := hedgetest.Admit(c, 1)
		if send || wait < 40*ms || wait > 50*ms {
			t.Fatalf("sent: %v, due again after %v, want after some 48 ms", send, wait)
		}
		time.Sleep(wait)
		if send, _ := hedgetest.Admit(c, 1); !send {
			t.Error("the hedge is not sent when it is due by what is known now")
		}

		// Where calls have become faster, the hedge is due as it was.
		record(1000, 2*ms)
		if send, wait := hedgetest.Admit(again, 1); !send && wait > 0 {
			t.Errorf("due again after %v at the age %v", wait, again.Age())
		}
	})
}
