package race_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/race"
)

const ms = time.Millisecond

// policy admits every hedge, each a further delay after the one before, and counts.
type policy struct {
	delay  time.Duration
	hedges int

	admitted, unsent, won int
	notReplayable         bool
}

func (p *policy) NotReplayable() { p.notReplayable = true }
func (p *policy) Admit(n int) (bool, time.Duration) {
	if n > p.hedges || p.notReplayable {
		return false, 0
	}
	p.admitted++
	return true, 0
}
func (p *policy) Unsent(int)                                      { p.unsent++ }
func (p *policy) Next() (time.Duration, bool)                     { return p.delay, p.admitted < p.hedges }
func (p *policy) Final(_ int, err error) bool                     { return err == nil }
func (p *policy) Heeds() bool                                     { return false }
func (p *policy) Failed(error, metadata.MD) (time.Duration, bool) { return 0, false }
func (p *policy) Successive() bool                                { return false }
func (p *policy) Ended(error)                                     {}
func (p *policy) CutShort(time.Time)                              {}
func (p *policy) Won(n int, _ error)                              { p.won = n }
func (p *policy) Hedged(time.Duration, bool, error)               {}
func (p *policy) LoserPanicked()                                  {}

// entrant takes its time for each step.
type entrant struct {
	ctx     context.Context
	primary time.Duration
	err     error // the primary's

	replayable func() bool
	prepare    func(n int) bool
	run        func(n int) time.Duration

	preparing    int // now; the race has it be 0 or 1
	ran          atomic.Int32
	began        time.Time
	primaryEnded time.Duration
}

func (e *entrant) Primary() error {
	select {
	case <-time.After(e.primary):
	case <-e.ctx.Done():
		e.err = e.ctx.Err()
	}
	e.primaryEnded = time.Since(e.began)
	return e.err
}
func (e *entrant) Trailer() metadata.MD { return nil }
func (e *entrant) Replayable() bool     { return e.replayable == nil || e.replayable() }
func (e *entrant) Hedge(n int, _ context.CancelCauseFunc) race.Attempt {
	e.preparing++
	defer func() { e.preparing-- }()
	if e.preparing > 1 {
		panic("two hedges are prepared at once")
	}
	if e.prepare != nil && !e.prepare(n) {
		return nil
	}
	return &running{e, n}
}

type running struct {
	*entrant
	n int
}

func (r *running) Run(ctx context.Context) error {
	r.ran.Add(1)
	select {
	case <-time.After(r.run(r.n)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slow prepares hedges in the given times, and all others at once.
func slow(times map[int]time.Duration) func(int) bool {
	return func(n int) bool {
		if d := times[n]; d > 0 {
			time.Sleep(d)
		}
		return true
	}
}

// TestPreparing says who waits while a hedge is prepared, and who does not. Hedges are due at 10, 20, 30 ms.
func TestPreparing(t *testing.T) {
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		entrant *entrant
		hedges  int

		took    time.Duration
		primary time.Duration // when the primary has ended; took, if 0
		winner  int
		err     error
		ran     int
		unsent  int
	}{
		"the primary's caller waits for a hedge that reads its request": {
			entrant: &entrant{primary: 15 * ms, prepare: slow(map[int]time.Duration{1: 30 * ms})},
			hedges:  1, took: 40 * ms, primary: 15 * ms,
		},
		"and for one that looks at it": {
			entrant: &entrant{primary: 15 * ms, replayable: func() bool { time.Sleep(30 * ms); return true }},
			hedges:  1, took: 40 * ms, primary: 15 * ms,
		},
		"a failure too": {
			entrant: &entrant{primary: 15 * ms, err: broken, prepare: slow(map[int]time.Duration{1: 30 * ms}), run: after(5 * ms)},
			hedges:  1, took: 45 * ms, primary: 15 * ms, winner: 1, ran: 1,
		},
		"a hedge's win ends the primary at once": {
			entrant: &entrant{primary: time.Hour, prepare: slow(map[int]time.Duration{2: 30 * ms}), run: after(15 * ms)},
			hedges:  2, took: 50 * ms, primary: 25 * ms, winner: 1, ran: 1,
		},
		"hedges that come due meanwhile follow": {
			entrant: &entrant{primary: time.Hour, prepare: slow(map[int]time.Duration{1: 35 * ms}), run: func(n int) time.Duration {
				return []time.Duration{0, time.Hour, 5 * ms, time.Hour}[n]
			}},
			hedges: 2, took: 50 * ms, winner: 2, ran: 2,
		},
		"one that cannot be made is none": {
			entrant: &entrant{primary: 50 * ms, prepare: func(int) bool { return false }},
			hedges:  3, took: 50 * ms, unsent: 1,
		},
		"nor if the primary has failed": {
			entrant: &entrant{primary: 15 * ms, err: broken, prepare: func(int) bool { time.Sleep(20 * ms); return false }},
			hedges:  3, took: 30 * ms, primary: 15 * ms, err: broken, unsent: 1,
		},
		"nor if it was decided": {
			entrant: &entrant{primary: 15 * ms, prepare: func(int) bool { time.Sleep(20 * ms); return false }},
			hedges:  3, took: 30 * ms, primary: 15 * ms, unsent: 1,
		},
		"a request that cannot be repeated is not": {
			entrant: &entrant{primary: 50 * ms, replayable: func() bool { return false }},
			hedges:  3, took: 50 * ms,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, p := tc.entrant, &policy{delay: 10 * ms, hedges: tc.hedges}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				e.ctx, e.began = ctx, time.Now()
				var r race.Race
				out := r.Run(t.Context(), cancel, 10*ms, p, e)
				took, winner := time.Since(e.began), 0
				if out.Winner != nil {
					winner = out.Winner.(*running).n
					out.Release(nil)
				}
				if tc.primary == 0 {
					tc.primary = tc.took
				}
				if took != tc.took || e.primaryEnded != tc.primary || winner != tc.winner || !errors.Is(out.Err, tc.err) || (out.Err == nil) != (tc.err == nil) {
					t.Errorf("after %v (the primary %v) hedge %d with %v, want %v (%v) %d with %v",
						took, e.primaryEnded, winner, out.Err, tc.took, tc.primary, tc.winner, tc.err)
				}
				synctest.Wait()
				if int(e.ran.Load()) != tc.ran || p.unsent != tc.unsent || e.preparing != 0 {
					t.Errorf("%d hedges ran, %d unsent; want %d, %d", e.ran.Load(), p.unsent, tc.ran, tc.unsent)
				}
			})
		})
	}
}

func after(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// TestPreparing_Panics surfaces a panic of the preparation, or drops it when the call is decided.
func TestPreparing_Panics(t *testing.T) {
	for name, primary := range map[string]time.Duration{"before the end": time.Hour, "after it": 15 * ms} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				e := &entrant{ctx: ctx, primary: primary, prepare: func(int) bool { time.Sleep(20 * ms); panic("prepare") }}
				var r race.Race
				defer func() {
					if panicked := recover() != nil; panicked != (primary == time.Hour) {
						t.Errorf("panicked: %v", panicked)
					}
				}()
				r.Run(t.Context(), cancel, 10*ms, &policy{delay: 10 * ms, hedges: 2}, e)
			})
		})
	}
}

// TestPreparing_PrimaryPanics unwinds only when nobody reads the caller's request.
func TestPreparing_PrimaryPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &panicking{&entrant{prepare: slow(map[int]time.Duration{1: 30 * ms})}}
		began := time.Now()
		defer func() {
			if took := time.Since(began); recover() == nil || took != 40*ms || e.preparing != 0 {
				t.Errorf("after %v, want a panic after 40ms", took)
			}
		}()
		var r race.Race
		r.Run(t.Context(), func(error) {}, 10*ms, &policy{delay: 10 * ms, hedges: 1}, e)
	})
}

type panicking struct{ *entrant }

func (*panicking) Primary() error {
	time.Sleep(15 * ms)
	panic("primary")
}
