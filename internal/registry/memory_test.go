package registry_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/trigger"
	"github.com/grpchedge/hedge/stats"
)

// booked begins and ends a call that takes d, as far as the scheduler can tell.
func booked(s *hedge.Scheduler, target, method string, d time.Duration) {
	c := hcall.Begin((*registry.Registry)(s), context.Background(), target, method, nil)
	hedgetest.CutShort(&c, c.Age()+d)
}

// perNumber is a class function for requests that are numbers: fifty classes, more than there are
// to be.
func perNumber(_ context.Context, _ string, request any) string {
	return fmt.Sprint(request.(int) % 50)
}

// madeOnce bounds allocations that a process makes once, such as pools and goroutine stacks.
const madeOnce = 96 << 10

// TestRule16_WhatAMethodTakes measures what the documentation of WithMaxMethods states: by how much the
// heap grows for a method in each state, and for a target.
func TestRule16_WhatAMethodTakes(t *testing.T) {
	longtest.Simulation(t)
	var many []hedge.Option
	for i := range 200 {
		many = append(many, hedge.WithMethodOptions(fmt.Sprintf("/other.Svc/Get%d", i), hedge.WithMaxHedges(1)))
	}
	for _, tc := range []struct {
		name    string
		entries int
		each    bool // a target for each method
		steps   int  // of 2 s
		calls   int  // in each
		hedged  bool
		most    int64 // KB an entry
		spread  bool  // latencies of three decades
		options []hedge.Option
	}{
		{name: "called once", entries: 5_000, steps: 1, calls: 1, most: 4},
		{name: "learning", entries: 1_000, steps: 2, calls: 15, most: 6},
		{name: "busy and hedged", entries: 50, steps: 16, calls: 50, hedged: true, most: 35},
		{name: "busy, hedged and spread", entries: longtest.Size(10, 50), steps: 16, calls: 1000, hedged: true, most: 100,
			spread: true},
		{name: "called once, on a target each", entries: 5_000, each: true, steps: 1, calls: 1, most: 6},
		{name: "beside many rules", entries: 200, each: true, steps: 1, calls: 1, most: 6, options: many},
		{name: "busy, of many classes", entries: 10, steps: 16, calls: 200, hedged: true, most: 17 * 35,
			options: []hedge.Option{hedge.WithClass(perNumber)}},
		{name: "busy and hedged, with a control group", entries: 50, steps: 16, calls: 50, hedged: true, most: 60,
			options: []hedge.Option{hedge.WithControl(10)}},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			before := testserver.Heap()
			s := hedgetest.All(t, append(tc.options, hedge.WithMaxMethods(5_000))...)
			for range tc.steps {
				for i := range tc.entries {
					to := target
					if tc.each {
						to = fmt.Sprintf("dns:///host-%d.example:443", i)
					}
					for j := range tc.calls {
						c := hcall.Begin((*registry.Registry)(s), t.Context(), to, fmt.Sprintf("/pkg.Svc/Get%d", i), nil)
						took := ms + time.Duration(j)*ms/5
						if tc.spread { // from 1 ms to 1 s
							took = time.Duration(float64(ms) * math.Pow(1000, float64(j*7919%tc.calls)/float64(tc.calls)))
						}
						c.Inspect(j)
						c.End(hcall.Completion{Age: took})
						if tc.hedged {
							c.Teach(0, func(l, _ *trigger.Learner) { l.HedgeEnded(l, time.Now(), took, true) })
							c.Teach(0, func(l, _ *trigger.Learner) { l.HedgedCall(time.Duration(1+j%10)*ms, took, 1) })
						}
					}
				}
				time.Sleep(2 * time.Second)
			}
			took := int64(testserver.Heap()-before) - madeOnce
			runtime.KeepAlive(s)
			t.Logf("%d bytes an entry", took/int64(tc.entries))
			if took > int64(tc.entries)*tc.most<<10 {
				t.Errorf("%d bytes an entry, want %d KB at most", took/int64(tc.entries), tc.most)
			}
		})
	}
}

// TestRule16_MethodsAreBounded floods a registry with methods and targets of one call each. The
// first methods have the places. The other calls count under "(other)", and are not hedged, as
// rules for them are unknown there. The log says so once. A place is free when a method was idle
// for a quarter of an hour.
func TestRule16_MethodsAreBounded(t *testing.T) {
	bound, junk := 300, longtest.Size(4_000, 1_000_000)
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := hedgetest.All(t, hedge.WithMaxMethods(bound), hedge.WithTrigger(hedge.Fixed(ms)),
			hedge.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		for i := range bound {
			booked(s, target, fmt.Sprint("/first.Svc/", i), ms)
		}
		before := testserver.Heap()
		hedgetest.Update(t, s, hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(0)), hedge.WithMaxMethods(bound))
		for i := range junk {
			booked(s, []string{target, fmt.Sprint("dns:///host-", i)}[i%2], fmt.Sprint("/junk.Svc/", i), ms)
		}
		c := hcall.Begin((*registry.Registry)(s), t.Context(), "a target", method, nil, hedge.After(0))
		if c.Hedged {
			t.Error("a call of a method beyond the limit is hedged")
		}
		c.End(hcall.Completion{})
		if heap := int64(testserver.Heap()-before) - madeOnce; heap > 32<<10 {
			t.Errorf("%d calls of further methods take %d bytes", junk, heap)
		}
		rows := s.Methods()
		if other := rows[0]; len(rows) != bound+1 || other.Target != registry.Other || other.Method != registry.Other ||
			other.Names.Method != registry.Other || other.Calls != int64(junk)+1 || other.Off != other.Calls {
			t.Errorf("%d methods, the first is %+v; want %d, and %d calls of others", len(rows), rows[0], bound+1, junk+1)
		}
		if n := strings.Count(log.String(), "too many methods"); n != 1 {
			t.Errorf("logged %d times: %s", n, &log)
		}
		for i := range 3 {
			time.Sleep(8 * time.Minute)
			booked(s, target, "/first.Svc/0", ms)
			if rows := s.Methods(); i < 2 && len(rows) != bound+1 {
				t.Errorf("%d methods are left, some before they were idle for a quarter of an hour", len(rows))
			}
		}
		booked(s, target, "/new.Svc/Get", ms)
		if rows := s.Methods(); len(rows) != 3 || rows[2].Method != "/new.Svc/Get" {
			t.Errorf("after %d idle methods have left there are %+v", bound-1, rows)
		}
	})
}

// TestRule16_CountsNeverFall has hedged calls, entries that leave and readers meet at random.
// Targets leave with their last method.
func TestRule16_CountsNeverFall(t *testing.T) {
	s := hedgetest.All(t, hedge.WithBudgetPercent(400))
	const goroutines = 4
	calls := longtest.Size(400, 5_000)
	done := make(chan struct{})
	var readers, callers sync.WaitGroup
	left := int64(0)
	readers.Go(func() {
		for at := time.Duration(0); ; at += time.Hour {
			left = registry.Sweep((*registry.Registry)(s), at)
			select {
			case <-done:
				return
			default:
				runtime.Gosched()
			}
		}
	})
	readers.Go(func() {
		for last := (stats.Counts{}); ; {
			now := s.Stats()
			if now.Calls < last.Calls || now.Hedges < last.Hedges || now.HedgeWins < last.HedgeWins ||
				now.HedgeWins > now.Hedged || now.Hedged > now.Hedges || now.Hedged > now.Calls {
				t.Errorf("%+v after %+v", now, last)
				return
			}
			last = now
			select {
			case <-done:
				return
			default:
				runtime.Gosched()
			}
		}
	})
	var admitted atomic.Int64
	for g := range uint64(goroutines) {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(g, 1))
			var open []hcall.Call
			finish := func(c *hcall.Call) {
				if send, _ := hedgetest.Admit(c, 1); send {
					admitted.Add(1)
					c.Ended(&race.State{Winner: 1, Hedges: 1})
				}
			}
			for range calls {
				open = append(open, hcall.Begin((*registry.Registry)(s), t.Context(), fmt.Sprint(random.IntN(100)),
					fmt.Sprint(random.IntN(100)), nil, hedge.After(0)))
				if i := random.IntN(len(open)); len(open) > 100 {
					finish(&open[i])
					open = slices.Delete(open, i, i+1)
				}
			}
			for i := range open {
				finish(&open[i])
			}
		})
	}
	callers.Wait()
	close(done)
	readers.Wait()
	got := s.Stats()
	got.BudgetExhausted = 0
	if want := (stats.Counts{Calls: int64(goroutines * calls), Hedged: admitted.Load(), Hedges: admitted.Load(),
		HedgeWins: admitted.Load()}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if admitted.Load() < int64(goroutines*calls)/100 || left < 10 {
		t.Errorf("%d hedges, %d calls of methods that left", admitted.Load(), left)
	}
	for later := range time.Duration(2) {
		registry.Sweep((*registry.Registry)(s), (1e6+later)*time.Hour)
	}
	if n := registry.Targets((*registry.Registry)(s)); n > 1 { // the one of other methods stays
		t.Errorf("%d targets without a method are kept", n)
	}
}

// TestRule12_TargetsThatComeAndGo: where targets are forgotten, because they are seldom called, a
// call of each of them is not worth a hedge of each.
func TestRule12_TargetsThatComeAndGo(t *testing.T) {
	for _, tc := range []struct {
		name    string
		calls   int
		pause   time.Duration
		options []hedge.Option
	}{
		{name: "a call each 17 minutes", calls: 30, pause: 17 * time.Minute},
		{name: "the same, of a method with a budget of its own", calls: 30, pause: 17 * time.Minute,
			options: []hedge.Option{hedge.WithMethodOptions(method, hedge.WithBudgetPercent(10))}},
		{name: "a call a minute", calls: 30, pause: time.Minute},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.All(t, append(tc.options, hedge.WithTrigger(hedge.Fixed(0)))...)
			before := s.Stats()
			for i := range tc.calls {
				c := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, nil)
				hedgetest.Admit(&c, 1)
				if i == 0 {
					if sent := s.Stats().Hedges - before.Hedges; sent != 1 {
						t.Errorf("%d hedges of the very first call", sent)
					}
				}
				c.End(hcall.Completion{})
				for slept := time.Duration(0); slept < tc.pause; slept += time.Minute { // in which another target is called
					time.Sleep(time.Minute)
					c := hcall.Begin((*registry.Registry)(s), t.Context(), "busy", method, nil)
					c.End(hcall.Completion{})
				}
			}
			sent := s.Stats().Hedges - before.Hedges
			if share := int64(tc.calls / 10); sent > share+1 || tc.pause == time.Minute && sent < share {
				t.Errorf("%d hedges of %d calls", sent, tc.calls)
			}
		})
	}
}

const (
	ms     = time.Millisecond
	target = "dns:///test"
	method = "/pkg.Svc/Get"
)
