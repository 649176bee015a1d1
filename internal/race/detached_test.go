package race_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/race"
)

// runner is a call whose attempts take their time, or until their context ends.
type runner struct {
	ctx            context.Context // the primary's
	primary, hedge time.Duration
	panics         any // the primary's
	began          time.Time
	ended          [2]time.Duration // when attempts ended
	errs           [2]error
	drained        [2]bool
}

func (r *runner) take(ctx context.Context, n int, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	r.ended[n], r.errs[n] = time.Since(r.began), ctx.Err()
	return ctx.Err()
}

func (r *runner) Primary() error {
	err := r.take(r.ctx, 0, r.primary)
	if r.panics != nil {
		panic(r.panics)
	}
	return err
}
func (r *runner) Replayable() (ok, shared bool)                   { return true, false }
func (r *runner) Seen() race.Seen                                 { return race.Seen{} }
func (r *runner) Hedge(int, context.CancelCauseFunc) race.Attempt { return &runnerHedge{r} }
func (r *runner) Drain()                                          { r.drained[0] = true }

type runnerHedge struct{ r *runner }

func (h *runnerHedge) Run(ctx context.Context) error { return h.r.take(ctx, 1, h.r.hedge) }
func (h *runnerHedge) Seen() race.Seen               { return race.Seen{} }
func (h *runnerHedge) Drain()                        { h.r.drained[1] = true }

// TestRace_Detached has losers of a detached race outlive their call and its context, until they have ended, the deadline
// has passed, or patience is at its end.
func TestRace_Detached(t *testing.T) {
	for _, tc := range []struct {
		name           string
		primary, hedge time.Duration
		deadline       time.Duration // 0: none
		cancel         time.Duration // when the caller's context is cancelled; 0: when the call has returned
		returns        time.Duration
		winner         int
		err            error
		loserEnds      time.Duration
		loserErr       error
		drained        bool
	}{
		{"a primary is left", 50 * ms, 10 * ms, 0, 0, 20 * ms, 1, nil, 50 * ms, nil, true},
		{"a hedge is left", 15 * ms, 50 * ms, 0, 0, 15 * ms, 0, nil, 60 * ms, nil, true},
		{"patience ends", time.Hour, 10 * ms, 0, 0, 20 * ms, 1, nil, 30*time.Second + 20*ms, context.Canceled, true},
		{"the deadline passes", time.Hour, 10 * ms, 200 * ms, 0, 20 * ms, 1, nil, 200 * ms, context.DeadlineExceeded, true},
		{"the caller gives up", time.Hour, time.Hour, 0, 30 * ms, 30 * ms, 0, context.Canceled, 30 * ms, context.Canceled, false},
		{"the caller's deadline passes", time.Hour, time.Hour, 30 * ms, 0, 30 * ms, 0, context.DeadlineExceeded, 30 * ms, context.DeadlineExceeded, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if tc.deadline > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), tc.deadline)
				}
				if tc.cancel > 0 {
					time.AfterFunc(tc.cancel, cancel)
				}
				p, r := &policy{hedges: 1}, &runner{primary: tc.primary, hedge: tc.hedge, began: time.Now()}
				plan := plan(10*ms, 1)
				plan.Detached = true
				var end context.CancelCauseFunc
				r.ctx, end, plan.LetGo = race.AttemptContext(ctx, true)
				out := new(race.Race).Run(ctx, end, plan, p, r)
				returned := time.Since(r.began)
				cancel()
				if out.Winner == nil {
					end(nil)
				} else {
					out.Release(nil)
				}
				if !errors.Is(out.Err, tc.err) || returned != tc.returns || p.booked.Winner != tc.winner {
					t.Errorf("%+v after %v, attempt %d", out, returned, p.booked.Winner)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				loser := 1 - tc.winner
				// Where both attempts end by the deadline, the first of them ends the race and may cancel the other just before.
				if tc.err == context.DeadlineExceeded && r.errs[loser] == context.Canceled {
					r.errs[loser] = context.DeadlineExceeded
				}
				if r.ended[loser] != tc.loserEnds || !errors.Is(r.errs[loser], tc.loserErr) || r.drained[loser] != tc.drained {
					t.Errorf("the loser ended after %v with %v, drained: %v", r.ended[loser], r.errs[loser], r.drained[loser])
				}
				if n := p.leftEnded.Load(); (n == 1) != tc.drained {
					t.Errorf("%d losers that were left have ended", n)
				}
			})
		})
	}
}

// TestRace_DetachedPrimaryPanics lets the panic of a detached primary surface on the caller's goroutine, unless it has lost.
func TestRace_DetachedPrimaryPanics(t *testing.T) {
	for _, tc := range []struct {
		name    string
		primary time.Duration
		panics  any
		want    any
		losers  int32
	}{
		{"before a hedge is due", 5 * ms, "primary", "primary", 0},
		{"when it has lost", 50 * ms, "primary", nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, r := &policy{hedges: 1}, &runner{primary: tc.primary, hedge: 10 * ms, began: time.Now(), panics: tc.panics}
				plan := plan(10*ms, 1)
				plan.Detached = true
				var end context.CancelCauseFunc
				r.ctx, end, plan.LetGo = race.AttemptContext(t.Context(), true)
				var value any
				func() {
					defer func() {
						if v, ok := recover().(*race.Panic); ok {
							value = v.Value
						}
					}()
					if out := new(race.Race).Run(t.Context(), end, plan, p, r); out.Winner != nil {
						out.Release(nil)
					}
				}()
				time.Sleep(time.Minute)
				synctest.Wait()
				if value != tc.want || p.losers.Load() != tc.losers {
					t.Errorf("panic %v, want %v; %d losers panicked", value, tc.want, p.losers.Load())
				}
			})
		})
	}
}

// TestAttemptContext_OfAnEndedContext lets the context end before: the attempt's has ended at once, not some time later.
func TestAttemptContext_OfAnEndedContext(t *testing.T) {
	cause := errors.New("cause")
	cancelled, end := context.WithCancelCause(t.Context())
	end(cause)
	passed, free := context.WithTimeout(t.Context(), -1)
	defer free()
	for want, caller := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: passed} {
		for range 100 {
			ctx, cancel, _ := race.AttemptContext(caller, true)
			if ctx.Err() != want || want == context.Canceled && context.Cause(ctx) != cause {
				t.Fatal(ctx.Err(), context.Cause(ctx))
			}
			cancel(nil)
		}
	}
}
