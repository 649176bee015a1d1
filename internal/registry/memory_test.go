package registry_test

import (
	"context"
	"fmt"
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

// TestRule16_WhatAMethodTakes measures the memory that the documentation of WithMaxMethods states:
// the growth of the heap per method that has hardly been called, that has learned, and that is in
// full use, and per target.
func TestRule16_WhatAMethodTakes(t *testing.T) {
	longtest.Simulation(t)
	one := func(int) string { return target }
	each := func(i int) string { return fmt.Sprintf("dns:///host-%d.example:443", i) }
	manyOptions := func() (opts []hedge.Option) {
		for i := range 200 {
			opts = append(opts, hedge.WithMethodOptions(fmt.Sprintf("/other.Svc/Get%d", i), hedge.WithMaxHedges(1)))
		}
		return opts
	}
	for _, tc := range []struct {
		name    string
		entries int
		target  func(i int) string
		steps   int // of 2 s
		calls   int // in each
		hedged  bool
		most    int64 // KB an entry
		options []hedge.Option
		spread  bool // latencies of three decades
	}{
		{"called once", 5_000, one, 1, 1, false, 4, nil, false},
		{"learning", 1_000, one, 2, 15, false, 6, nil, false},
		{"busy", 50, one, 16, 50, false, 20, nil, false},
		{"busy and hedged", 50, one, 16, 50, true, 35, nil, false},
		{name: "busy, hedged and spread", entries: 50, target: one, steps: 16, calls: 1000, hedged: true,
			most: 100, spread: true},
		{"called once, on a target each", 5_000, each, 1, 1, false, 6, nil, false},
		{"called once, of a class", 5_000, one, 1, 1, false, 6, []hedge.Option{hedge.WithClass(perNumber)}, false},
		{"called once, by rules", 5_000, one, 1, 1, false, 6, []hedge.Option{
			hedge.WithMethodOptions("/pkg.*/Get*", hedge.WithMaxHedges(1)), hedge.WithMethodOptions(
				"/pkg.Svc/Get*", hedge.WithBudgetPercent(5)),
			hedge.WithTargetOptions("dns:*", hedge.WithDryRun(true)),
		}, false},
		{"called once, beside a rule of many options", 200, each, 1, 1, false, 6,
			[]hedge.Option{hedge.WithTargetOptions("dns:*", manyOptions()...)}, false},
		{"busy, of many classes", 10, one, 16, 200, true, 17 * 35, []hedge.Option{hedge.WithClass(perNumber)}, false},
		{"busy and hedged, with a control group", 50, one, 16, 50, true, 60, []hedge.Option{hedge.WithControl(10)}, false},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			before := testserver.Heap()
			s := hedgetest.All(t, append(tc.options, hedge.WithMaxMethods(5_000))...)
			for range tc.steps {
				for i := range tc.entries {
					for j := range tc.calls {
						c := hcall.Begin((*registry.Registry)(s), t.Context(), tc.target(i), fmt.Sprintf("/pkg.Svc/Get%d", i), nil)
						took := ms + time.Duration(j)*ms/5
						if tc.spread { // from 1 ms to 1 s
							took = time.Duration(float64(ms) * math.Pow(1000, float64(j*7919%tc.calls)/float64(tc.calls)))
						}
						c.Inspect(j, nil, nil)
						c.End(hcall.Ending{Age: took})
						if tc.hedged {
							c.Teach(func(l *trigger.Learner) { l.HedgeEnded(time.Now(), took, true) })
							c.Teach(func(l *trigger.Learner) { l.HedgedCall(time.Duration(1+j%10)*ms, took, 1) })
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

func TestRule16_IdleTargetsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t)
		book := func(name string) {
			c := hcall.Begin((*registry.Registry)(s), t.Context(), name, method, nil)
			c.End(hcall.Ending{})
		}
		names := func() string {
			var all []string
			for _, row := range s.Methods() {
				all = append(all, row.Target)
			}
			return strings.Join(all, " ")
		}
		book("idle")
		book("busy")
		for range 60 {
			time.Sleep(time.Minute + time.Second)
			book("busy")
		}
		if got := names(); got != "busy" {
			t.Errorf("after an hour there are: %s", got)
		}
		if got := s.Stats().Calls; got != 62 {
			t.Errorf("%d calls; those of a target that left count", got)
		}
		book("idle")
		if got := names(); got != "busy idle" {
			t.Errorf("a target came back: %s", got)
		}
	})
}

// flood makes calls of n names that are not used again, from several goroutines. After every ten,
// each of these calls a busy method, the busy ones in turn. It returns how often each of these was
// called.
func flood(s *hedge.Scheduler, n, busy int, junk, used func(i int) (target, method string)) int {
	const goroutines, share = 4, 10
	var calls atomic.Int64
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			for i := g; i < n; i += goroutines {
				target, method := junk(i)
				booked(s, target, method, ms)
				if i/goroutines%share == 0 {
					target, method = used(int(calls.Add(1)) % busy)
					booked(s, target, method, ms)
				}
			}
		})
	}
	group.Wait()
	for i := int(calls.Load()) + 1; i%busy != 1; i++ { // the last round
		target, method := used(i % busy)
		booked(s, target, method, ms)
		calls.Add(1)
	}
	return int(calls.Load()) / busy
}

// TestRule16_MethodsAreBounded sends a million method names through one target, and then as many
// targets as there may be, while a hundred methods are in use that came when there was room for no
// more.
func TestRule16_MethodsAreBounded(t *testing.T) {
	longtest.Simulation(t)
	bound, names, targets := 2_000, 20_000, 10_000
	if longtest.Long() {
		bound, names, targets = 5_000, 1_000_000, 100_000
	}
	const busy = 100
	s := hedgetest.All(t, hedge.WithMaxMethods(bound))
	used := func(i int) (string, string) { return target, fmt.Sprintf("/pkg.Svc/Get%d", i) }
	before := testserver.Heap()
	within := func(when string) {
		heap := int64(testserver.Heap() - before)
		t.Logf("%s: %d KiB, %d entries", when, heap>>10, len(s.Methods()))
		if n := len(s.Methods()); n != bound || heap > int64(bound)*8<<10 {
			t.Errorf("%s: %d entries with a bound of %d, in %d bytes", when, n, bound, heap)
		}
	}
	made := func(name string, i int) string { return fmt.Sprintf("/%s.Svc/Method%d", name, i) }
	first := 2 * bound
	for i := range first {
		booked(s, target, made("first", i), ms)
	}
	within("full")
	calls := flood(s, names, busy, func(i int) (string, string) { return target, made("junk", i) }, used)
	within("after a flood of methods")
	calls += flood(s, targets, busy, func(i int) (string, string) {
		return fmt.Sprintf("dns:///host-%d", i),
			method
	}, used)
	within("after a flood of targets")

	rows := map[string]int64{}
	for _, row := range s.Methods() {
		if row.Target == target {
			rows[row.Method] = row.Calls
		}
	}
	for i := range busy {
		// The first call of a method may be forgotten before the second: only then is the method
		// known to be in use.
		if _, method := used(i); rows[method] < int64(calls)-1 {
			t.Errorf("%s: %d calls in its entry, of %d", method, rows[method], calls)
		}
	}
	if got, want := s.Stats().Calls, int64(first+names+targets+busy*calls); got != want {
		t.Errorf("%d calls, want %d", got, want)
	}
	runtime.KeepAlive(s)
}

// TestEntries_SingleCallsLeaveFirst floods a registry with methods of one call each. A method with
// more calls stays, although it is called less often than there is room for others.
func TestEntries_SingleCallsLeaveFirst(t *testing.T) {
	s := hedgetest.All(t, hedge.WithMaxMethods(32))
	booked(s, target, method, ms)
	for i := range 1000 {
		if i%40 == 0 {
			booked(s, target, method, ms)
		}
		booked(s, target, fmt.Sprint("/junk.Svc/", i), ms)
	}
	for _, row := range s.Methods() {
		if row.Method == method && row.Calls == 26 {
			return
		}
	}
	t.Errorf("the method was removed: %d methods", len(s.Methods()))
}

// crowd calls 2,000 new methods, which removes all other entries without a call.
func crowd(s *hedge.Scheduler, round int) {
	for i := range 2000 {
		booked(s, fmt.Sprintf("dns:///host-%d", i), fmt.Sprintf("/junk/Name%d", round), ms)
	}
}

// A call in flight still counts after its method was removed.
func TestRule16_CallsInFlightOutliveTheirEntry(t *testing.T) {
	s := hedgetest.All(t, hedge.WithMaxMethods(200))
	c := hcall.Begin((*registry.Registry)(s), t.Context(), target, method, nil, hedge.After(0))
	lost := hcall.Begin((*registry.Registry)(s), t.Context(), target, method+"2", nil, hedge.After(0))
	crowd(s, 0)
	for _, row := range s.Methods() {
		if row.Target == target {
			t.Fatalf("%s has not left", row.Method)
		}
	}
	before := s.Stats()
	if before.Calls != 2002 || before.Hedges != 0 {
		t.Fatalf("%+v", before)
	}
	if send, _ := hedgetest.Admit(&c, 1); !send {
		t.Fatal("the hedge is not sent")
	}
	hedgetest.HedgeWins(&c, ms, nil)
	c.LoserPanicked()
	lost.NotReplayable()
	want := before
	want.Hedged, want.Hedges, want.HedgeWins, want.LoserPanics, want.NotReplayable = 1, 1, 1, 1, 1
	if got := s.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	crowd(s, 1)
	if got := len(s.Methods()); got != 200 {
		t.Errorf("%d methods, with what has left", got)
	}
}

// TestRule16_CountsNeverFall has hedged calls, entries that leave and readers meet at random.
func TestRule16_CountsNeverFall(t *testing.T) {
	s := hedgetest.All(t, hedge.WithMaxMethods(200), hedge.WithBudgetPercent(400))
	const goroutines = 4
	calls := longtest.Size(700, 5_000)
	done := make(chan struct{})
	var readers, callers sync.WaitGroup
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
					hedgetest.HedgeWins(c, ms, nil)
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
	if admitted.Load() < int64(goroutines*calls)/100 {
		t.Errorf("%d hedges: the test has come to nothing", admitted.Load())
	}
}

// TestRule12_TargetsThatComeAndGo: where targets are forgotten, for want of room or because they
// are seldom called, a call of each of them is not worth a hedge of each.
func TestRule12_TargetsThatComeAndGo(t *testing.T) {
	for _, tc := range []struct {
		name    string
		full    bool
		calls   int
		pause   time.Duration
		options []hedge.Option
	}{
		{"other targets, where there is no room", true, 2_000, 0, nil},
		{"a call each 17 minutes", false, 200, 17 * time.Minute, nil},
		{"the same, of a method with a budget of its own", false, 200, 17 * time.Minute,
			[]hedge.Option{hedge.WithMethodOptions(method, hedge.WithBudgetPercent(10))}},
		{"a call a minute", false, 200, time.Minute, nil},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.All(t, append(tc.options, hedge.WithMaxMethods(200), hedge.WithTrigger(hedge.Fixed(0)))...)
			if tc.full {
				crowd(s, 0)
			}
			before := s.Stats()
			for i := range tc.calls {
				name := target
				if tc.full {
					name = fmt.Sprintf("dns:///other-%d", i)
				}
				c := hcall.Begin((*registry.Registry)(s), t.Context(), name, method, nil)
				hedgetest.Admit(&c, 1)
				if i == 0 && !tc.full {
					if sent := s.Stats().Hedges - before.Hedges; sent != 1 {
						t.Errorf("%d hedges of the first call of all", sent)
					}
				}
				c.End(hcall.Ending{})
				for slept := time.Duration(0); slept < tc.pause; slept += time.Minute { // in which another target is called
					time.Sleep(time.Minute)
					c := hcall.Begin((*registry.Registry)(s), t.Context(), "busy", method, nil)
					c.End(hcall.Ending{})
				}
			}
			sent := s.Stats().Hedges - before.Hedges
			if share := int64(tc.calls / 10); sent > share+1 || tc.pause == time.Minute && sent < share {
				t.Errorf("%d hedges of %d calls", sent, tc.calls)
			}
		})
	}
}
