package race_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// attempts runs hedge n as the function says.
type attempts struct {
	*entrant
	hedge func(n int, ctx context.Context) error
}

func (a *attempts) Hedge(n int, _ *race.Context) race.Attempt { return attemptOf{a, n} }

type attemptOf struct {
	*attempts
	n int
}

func (a attemptOf) Run(ctx *race.Context) race.End { return race.End{Err: a.hedge(a.n, ctx)} }

// TestRace_LosersAreCanceledBeforeTheCallReturns has a hedge panic, and a loser that takes long to cancel.
// The caller does not get the panic before the next loser is canceled too: otherwise the caller's context
// may end first, and be the cause of the loser's end.
func TestRace_LosersAreCanceledBeforeTheCallReturns(t *testing.T) {
	var last context.Context
	var sent sync.WaitGroup
	sent.Add(2)
	a := &attempts{entrant: &entrant{primary: time.Hour}, hedge: func(n int, ctx context.Context) error {
		switch n {
		case 1:
			sent.Wait()
			panic("hedge")
		case 2:
			for range 100_000 { // canceled one after the other
				_, cancel := context.WithCancel(ctx)
				defer cancel()
			}
		case 3:
			last = ctx
		}
		sent.Done()
		<-ctx.Done()
		return ctx.Err()
	}}
	var cancel context.CancelCauseFunc
	a.ctx, cancel = context.WithCancelCause(t.Context())
	defer cancel(nil)
	defer func() {
		if v := recover(); v == nil || context.Cause(last) != rpc.ErrLost {
			t.Errorf("panic %v, and a loser has ended by %v, want a panic and %v", v, context.Cause(last), rpc.ErrLost)
		}
	}()
	new(race.Race).Run(t.Context(), cancel, plan(ms, 3), &policy{hedges: 3}, a)
}

// TestRace_ADeafPrimary has the caller give up after 20 ms, while a primary that ignores its context
// runs for 50 ms. A hedge that fails with the caller's context shows that the caller has gone, and a
// hedge that is being prepared then is not sent.
func TestRace_ADeafPrimary(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(int) bool
		hedges  int
		goneAt  time.Duration
	}{
		{name: "a hedge in flight", hedges: 1, goneAt: 20 * ms},
		{name: "a hedge being prepared", prepare: slow(map[int]time.Duration{1: 20 * ms}), goneAt: 30 * ms},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*ms)
			defer cancel()
			p := &policy{hedges: 1}
			e := &entrant{prepare: tc.prepare, run: after(time.Hour)}
			e.do = func() error { time.Sleep(50 * ms); return context.DeadlineExceeded }
			new(race.Race).Run(ctx, func(error) {}, plan(10*ms, 1), p, e)
			synctest.Wait()
			if r := p.final; r.Hedges != tc.hedges || int(e.ran.Load()) != tc.hedges || !r.CallerGone || r.GoneAt != tc.goneAt {
				t.Errorf("%d hedges, the caller gone at %v, want %d, %v", r.Hedges, r.GoneAt, tc.hedges, tc.goneAt)
			}
		})
	}
}

// TestRace_Restart restarts a race before its first hedge is due. The race forgets the time at which the
// hedge was due.
func TestRace_Restart(t *testing.T) {
	for name, shared := range map[string]*race.Alarm{"own timer": nil, "alarm": new(race.Alarm)} {
		hedgetest.Run(t, name, func(t *testing.T) {
			var r race.Race
			e := &entrant{run: after(ms)}
			e.do = func() error {
				time.Sleep(5 * ms)
				if !r.Restart(time.Now()) {
					t.Error("the race cannot be restarted")
				}
				time.Sleep(7 * ms) // the hedge would be due
				return nil
			}
			plan := plan(10*ms, 1)
			plan.Alarm = shared
			out := r.Run(t.Context(), func(error) {}, plan, &policy{hedges: 1}, e)
			if !out.Untouched || shared != nil && race.Armed(shared) {
				t.Errorf("the outcome is %+v, want an untouched race that has left the alarm", out)
			}
		})
	}
}
