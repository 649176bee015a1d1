package race_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestRace_Concurrently has races share one alarm in real time, and each Race run again and again
// if it was untouched. No hedge is forgotten, or its call would not end.
func TestRace_Concurrently(t *testing.T) {
	var shared race.Alarm
	var group sync.WaitGroup
	var mu sync.Mutex
	var untouched, hedged int
	for g := range 8 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 3))
			r := new(race.Race)
			for range 500 {
				ctx, cancel := context.WithCancelCause(context.Background())
				delay, stuck := time.Duration(random.Int64N(int64(300*time.Microsecond))), random.IntN(2) == 0
				e := &entrant{ctx: ctx, primary: 1 + time.Duration(random.Int64N(int64(300*time.Microsecond))), run: after(0)}
				if stuck { // until it is cancelled
					e.primary = time.Hour
				}
				p := &policy{hedges: 1}
				plan := plan(delay, 1)
				plan.Alarm = &shared
				out := r.Run(context.Background(), cancel, plan, p, e)
				if out.Err != nil || stuck && out.Winner == nil {
					t.Errorf("the outcome is %+v, want a winner; %+v", out, p.final)
				}
				mu.Lock()
				if out.Untouched {
					untouched++
				} else {
					r = new(race.Race)
					hedged += p.final.Hedges
				}
				mu.Unlock()
				cancel(nil)
			}
		})
	}
	group.Wait()
	if untouched < 100 || hedged < 2000 {
		t.Errorf("%d races were untouched, %d hedges sent", untouched, hedged)
	}
}

// TestRace_SetsNoTimerThatIsDue: in a bubble, such timers crash the race detector within this test.
func TestRace_SetsNoTimerThatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				var own race.Alarm
				for i := range 3000 {
					ctx, cancel := context.WithCancelCause(t.Context())
					p := plan(0, 1)
					e := &entrant{ctx: ctx, primary: time.Hour, hedge: func(int, context.Context) error { return nil }}
					switch i % 3 {
					case 0: // the primary fails at once
						e.do, p.Delay, p.Due = func() error { return errors.New("failed") }, time.Hour, time.Hour
					case 1:
						p.Alarm = &own
					}
					if out := new(race.Race).Run(t.Context(), cancel, p, &policy{hedges: 1, failover: true}, e); out.Winner == nil {
						t.Errorf("no hedge won: %v", out.Err)
					}
				}
			})
		}
		group.Wait()
	})
}

// TestRace_Commit settles a race on its primary before it runs, while it runs, and after a hedge
// has won.
func TestRace_Commit(t *testing.T) {
	broken, sleeps := errors.New("broken"), func(*race.Race) { time.Sleep(20 * ms) }
	for name, tc := range map[string]struct {
		during func(r *race.Race)
		hedge  time.Duration // how long the hedge takes

		committed bool
		hedges    int
	}{
		"before a hedge is due": {during: func(*race.Race) {}, committed: true},
		"while a hedge is out": {during: sleeps, hedge: time.Hour, committed: true,
			hedges: 1},
		"after a hedge has won": {during: sleeps, hedge: ms, hedges: 1},
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var r race.Race
			p := &policy{hedges: 1}
			e := &entrant{ctx: ctx, run: after(tc.hedge)}
			e.do = func() error {
				tc.during(&r)
				told := 0
				if got := r.Commit(func(so *race.State) { told += so.Hedges }); got != tc.committed {
					t.Errorf("Commit: %t", got)
				}
				if tc.committed && told != tc.hedges {
					t.Errorf("reported %d hedges", told)
				}
				time.Sleep(30 * ms) // a hedge that was due would be sent now
				return broken
			}
			out := r.Run(t.Context(), cancel, plan(10*ms, 1), p, e)
			if won := out.Winner == nil && out.Err == broken; won != tc.committed || p.final.Hedges != tc.hedges ||
				p.final.Committed != tc.committed {
				t.Errorf("%+v, report %+v", out, p.final)
			}
			if r.Commit(nil) {
				t.Error("Commit after the outcome was delivered")
			}
		})
	}
	for _, failure := range []error{nil, broken} { // broken would send a hedge
		hedgetest.Run(t, fmt.Sprint("before it runs: ", failure), func(t *testing.T) {
			var r race.Race
			if !r.Commit(nil) {
				t.Error("Commit: false")
			}
			plan, p := plan(10*ms, 1), &policy{hedges: 1, failover: true}
			e := &entrant{do: func() error { time.Sleep(time.Hour); return failure }}
			out := r.Run(t.Context(), func(error) {}, plan, p, e)
			if !out.Untouched || p.untouched != 1 || out.Winner != nil || out.Err != failure || !r.Commit(nil) {
				t.Errorf("the outcome is %+v, want the primary's failure, untouched", out)
			}
		})
	}
}

// TestRace_CommitAsItBegins settles races at the moment at which they begin.
func TestRace_CommitAsItBegins(t *testing.T) {
	for range 2000 {
		var r race.Race
		var p policy
		ready, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			close(ready)
			for range 20 {
				r.Commit(func(*race.State) {})
			}
		}()
		<-ready
		out := r.Run(t.Context(), func(error) {}, plan(time.Hour, 1), &p, &entrant{do: func() error { return nil }})
		if <-done; out.Winner != nil || out.Err != nil || p.final.DecidedAt > time.Hour {
			t.Fatalf("%+v, report %+v", out, p.final)
		}
	}
}

// TestRace_CommitAsThePrimaryEnds lets the primary's end wait for the lock behind a Commit, which must
// make the machine in the critical section that finds the race running. The lock is handed over in
// order, because the first in the queue has waited for long and then found it taken.
func TestRace_CommitAsThePrimaryEnds(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds = 100 // of the scheduler: all other goroutines then wait
	begun, end, done, out := make(chan bool), make(chan bool), make(chan bool), make(chan race.Result, 1)
	var r race.Race
	e := &entrant{do: func() error { close(begun); <-end; return nil }}
	go func() { out <- r.Run(t.Context(), func(error) {}, plan(time.Hour, 1), &policy{}, e) }()
	<-begun
	mu := race.Mutex(&r)
	mu.Lock()
	go func() { defer close(done); r.Commit(func(*race.State) {}) }()
	for n := range 2 * rounds {
		if runtime.Gosched(); n == rounds {
			close(end)
		}
	}
	for began := time.Now(); time.Since(began) < 2*ms; {
	}
	mu.Unlock()
	mu.Lock()
	for range rounds {
		runtime.Gosched()
	}
	mu.Unlock()
	if got := <-out; got.Untouched || got.Winner != nil {
		t.Errorf("the outcome is %+v, want a touched race without a winner", got)
	}
	<-done
}

// TestRace_LosersAreCanceledBeforeTheCallReturns has a hedge panic, and a loser that takes long to cancel.
// The caller does not get the panic before the next loser is canceled too: otherwise the caller's context
// may end first, and be the cause of the loser's end.
func TestRace_LosersAreCanceledBeforeTheCallReturns(t *testing.T) {
	var last context.Context
	var sent sync.WaitGroup
	sent.Add(2)
	a := &entrant{primary: time.Hour, hedge: func(n int, ctx context.Context) error {
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

// TestRace_TheCallerLeaves has the caller give up after 20 ms, or its deadline pass after 30 ms. If a
// primary that ignores its context runs for 50 ms, a hedge that fails with the caller's context shows that
// the caller has gone, and a hedge that is being prepared then is not sent.
func TestRace_TheCallerLeaves(t *testing.T) {
	deaf := func(context.Context) error { time.Sleep(50 * ms); return context.DeadlineExceeded }
	for _, tc := range []struct {
		name    string
		gaveUp  bool
		primary func(context.Context) error // nil: it ends with its context
		prepare func(int) bool
		hedges  int
		goneAt  time.Duration // 0: the primary has answered
	}{
		{name: "gives up", gaveUp: true, hedges: 1, goneAt: 20 * ms},
		{name: "a deadline", hedges: 1, goneAt: 30 * ms},
		{name: "an answer as the deadline passes", prepare: func(int) bool { return false },
			primary: func(ctx context.Context) error { <-ctx.Done(); return nil }},
		{name: "a deaf primary", primary: deaf, hedges: 1, goneAt: 30 * ms},
		{name: "a deaf primary, and a hedge is prepared", primary: deaf, prepare: slow(1, 30*ms), goneAt: 40 * ms},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
			defer cancel()
			if tc.gaveUp {
				time.AfterFunc(20*ms, cancel)
			}
			p, e := &policy{hedges: 1}, &entrant{ctx: ctx, primary: time.Hour, prepare: tc.prepare, run: after(time.Hour)}
			if tc.primary != nil {
				e.do = func() error { return tc.primary(ctx) }
			}
			new(race.Race).Run(ctx, func(error) {}, plan(10*ms, 1), p, e)
			synctest.Wait()
			if r := p.final; r.Hedges != tc.hedges || int(e.ran.Load()) != tc.hedges || r.CallerGone != (tc.goneAt > 0) ||
				r.GoneAt != tc.goneAt || r.GaveUp != tc.gaveUp {
				t.Errorf("%+v, want %d hedges, the caller gone at %v, and given up: %t", r, tc.hedges, tc.goneAt, tc.gaveUp)
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

// TestRace_RestartAsTheHedgeIsDue restarts races at the moment at which their first hedge is due, and ends
// their primaries then. If that leaves a race untouched, nothing may use it later: it begins again, and
// gets its hedge.
func TestRace_RestartAsTheHedgeIsDue(t *testing.T) {
	for name, shared := range map[string]*race.Alarm{"own timer": nil, "alarm": new(race.Alarm)} {
		hedgetest.Run(t, name, func(t *testing.T) {
			for range 100 {
				var r race.Race
				run := func(p *policy, do func() error) race.Result {
					plan := plan(10*ms, 1)
					plan.Alarm = shared
					return r.Run(t.Context(), func(error) {}, plan, p, &entrant{do: do, run: after(ms)})
				}
				restarted := false
				out := run(&policy{hedges: 1}, func() error {
					time.Sleep(10 * ms)
					restarted = r.Restart(time.Now())
					return nil
				})
				synctest.Wait()
				if out.Untouched != restarted {
					t.Fatalf("restarted: %t; the outcome is %+v", restarted, out)
				}
				if !out.Untouched {
					continue
				}
				p := &policy{hedges: 1}
				run(p, func() error { time.Sleep(30 * ms); return nil })
				if synctest.Wait(); p.sent.Load() != 1 {
					t.Fatalf("%d hedges of the second call, want 1", p.sent.Load())
				}
			}
		})
	}
}

// TestRace_CommitAsTheCallerLeaves has a primary that has failed, a hedge in flight, and a caller whose
// context ends while another goroutine commits. The hedge is canceled.
func TestRace_CommitAsTheCallerLeaves(t *testing.T) {
	for range 2000 {
		caller, leave := context.WithCancel(t.Context())
		var r race.Race
		sent, ended := make(chan struct{}), make(chan struct{})
		a := &entrant{do: func() error { <-sent; return errors.New("broken") }}
		a.hedge = func(_ int, ctx context.Context) error {
			close(sent)
			<-ctx.Done()
			close(ended)
			return ctx.Err()
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			<-sent
			for caller.Err() == nil {
			}
			r.Commit(func(*race.State) {})
		}()
		go func() {
			<-sent
			time.Sleep(50 * time.Microsecond)
			leave()
		}()
		if out := r.Run(caller, func(error) {}, plan(0, 1), &policy{hedges: 1}, a); out.Err == nil {
			t.Fatalf("%+v", out)
		}
		<-done
		<-ended
	}
}

type wake func()

func (w wake) Wake() { w() }

// TestAlarm_WakesEachOnTime sets waiters with delays that change, cancels some, and expects the
// others on time.
func TestAlarm_WakesEachOnTime(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			var shared race.Alarm
			var woken, cancelled, refused int
			var mu sync.Mutex
			for range 200 {
				delay := time.Duration(1+random.IntN(3)) * 10 * time.Millisecond
				due := time.Now().Add(delay)
				w := &race.Waiter{Waker: wake(func() {
					mu.Lock()
					defer mu.Unlock()
					woken++
					if !time.Now().Equal(due) {
						t.Errorf("woken %v late", time.Since(due))
					}
				})}
				if !shared.Set(w, due, delay) {
					refused++
				} else if random.IntN(2) == 0 {
					after := time.Duration(random.Int64N(int64(delay)))
					go func() {
						time.Sleep(after)
						if !shared.Cancel(w) {
							t.Error("a waiter was removed before its time")
						}
					}()
					cancelled++
				}
				time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if woken+cancelled+refused != 200 || woken == 0 || cancelled == 0 {
				t.Errorf("seed %d: %d woken, %d cancelled, %d refused", seed, woken, cancelled, refused)
			}
		})
	}
}

func TestAlarm_RefusesAWaiterFarBeforeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared race.Alarm
		none := wake(func() {})
		var waiters []*race.Waiter
		for i := range 100 {
			w := &race.Waiter{Waker: none}
			delay := time.Second + time.Duration(i)*time.Millisecond
			if !shared.Set(w, time.Now().Add(delay), delay) {
				t.Fatal("a waiter after all others was refused")
			}
			waiters = append(waiters, w)
		}
		if shared.Set(&race.Waiter{Waker: none}, time.Now().Add(time.Millisecond), time.Millisecond) {
			t.Error("a waiter before a hundred others was accepted")
		}
		if !shared.Set(&race.Waiter{Waker: none}, time.Now().Add(time.Second+95*time.Millisecond), time.Second) {
			t.Error("a waiter before a few others was refused")
		}
		for _, w := range waiters {
			if !shared.Cancel(w) || shared.Cancel(w) {
				t.Error("a waiter was not cancelled exactly once")
			}
		}
		time.Sleep(2 * time.Second)
	})
}

// TestAlarm_StopsWhenEmpty shows that the timer of calls that have ended does not fire, and that the
// next call sets it again.
func TestAlarm_StopsWhenEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared race.Alarm
		woken := 0
		set := func(delay time.Duration) *race.Waiter {
			w := &race.Waiter{Waker: wake(func() { woken++ })}
			if !shared.Set(w, time.Now().Add(delay), delay) {
				t.Fatal("a waiter was refused")
			}
			return w
		}
		first, second := set(time.Second), set(2*time.Second)
		shared.Cancel(first)
		if !race.Armed(&shared) {
			t.Error("the timer stopped, want it armed while a call waits")
		}
		shared.Cancel(second)
		if race.Armed(&shared) {
			t.Error("the timer is armed, want it stopped when no call waits")
		}
		set(3 * time.Second)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if woken != 1 || race.Armed(&shared) {
			t.Errorf("%d calls woken, want the last one", woken)
		}
	})
}
