package interceptor_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// told is a trace that writes a line for each event.
type told struct {
	mu    sync.Mutex
	lines []string
}

func (w *told) trace() *hedge.Trace {
	return traceTo(func(_, line string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lines = append(w.lines, line)
	})
}

// traceTo is a trace that passes the name of each of its functions, and what happened, to one function.
func traceTo(tell func(function, line string)) *hedge.Trace {
	return &hedge.Trace{
		HedgeSent: func(e stats.HedgeSent) { tell("HedgeSent", fmt.Sprintf("sent %d at %v", e.Hedge, e.Age)) },
		HedgeHeldBack: func(e stats.HedgeHeldBack) {
			tell("HedgeHeldBack", fmt.Sprintf("held back %d at %v: %s", e.Hedge, e.Age, e.Reason))
		},
		AttemptLost: func(e stats.AttemptLost) { tell("AttemptLost", fmt.Sprintf("%d lost, ran %v", e.Attempt, e.Ran)) },
		CallDecided: func(e stats.CallDecided) {
			tell("CallDecided", fmt.Sprintf("decided at %v by %d of %d, delay %v, error %t", e.Age, e.Winner, e.Attempts,
				e.Delay, e.Err != nil))
		},
	}
}

func TestTrace_WhatHappened(t *testing.T) {
	alone := func(r stats.Reason) stats.Outcome { return stats.Outcome{Attempts: 1, Delay: 10 * ms, Reason: r} }
	type story struct {
		name    string
		steps   []step
		options []hedge.Option
		timeout time.Duration
		before  func(*testing.T, *hedge.Scheduler)
		events  []string
		outcome stats.Outcome
		request any
	}
	stories := []story{
		{name: "not replayable", steps: []step{answers(15 * ms)}, request: &struct{ c chan int }{},
			events: []string{"held back 1 at 15ms: not replayable"}, outcome: alone(stats.NotReplayable)},
		{name: "large", steps: []step{answers(15 * ms)}, request: wrapperspb.Bytes(make([]byte, 1<<20)),
			events: []string{"held back 1 at 15ms: not replayable"}, outcome: alone(stats.NotReplayable)},
		{name: "no hedge is due", steps: []step{answers(5 * ms)}, outcome: stats.Outcome{Attempts: 1, Delay: 10 * ms}},
		{name: "the hedge wins", steps: []step{answers(50 * ms), answers(3 * ms)},
			events:  []string{"sent 1 at 10ms", "0 lost, ran 13ms", "decided at 13ms by 1 of 2, delay 10ms, error false"},
			outcome: stats.Outcome{Attempts: 2, Winner: 1, Delay: 10 * ms}},
		{name: "the primary wins", steps: []step{answers(25 * ms), answers(50 * ms), answers(50 * ms)},
			events: []string{"sent 1 at 10ms", "sent 2 at 20ms", "1 lost, ran 15ms", "2 lost, ran 5ms",
				"decided at 25ms by 0 of 3, delay 10ms, error false"},
			outcome: stats.Outcome{Attempts: 3, Delay: 10 * ms}},
		{name: "all fail", steps: []step{fails(30*ms, codes.Unavailable), fails(ms, codes.Unavailable),
			fails(ms, codes.Unavailable)},
			events:  []string{"sent 1 at 10ms", "sent 2 at 20ms", "decided at 30ms by 0 of 3, delay 10ms, error true"},
			outcome: stats.Outcome{Attempts: 3, Delay: 10 * ms}},
		{name: "the caller leaves", steps: []step{silent(), silent(), silent()}, timeout: 15 * ms,
			events:  []string{"sent 1 at 10ms", "decided at 15ms by 0 of 2, delay 10ms, error true"},
			outcome: stats.Outcome{Attempts: 2, Delay: 10 * ms}},
		{name: "a server pushes back", steps: []step{answers(40 * ms), fails(5*ms, codes.Unavailable, "-1")},
			events: []string{"sent 1 at 10ms", "held back 2 at 20ms: pushed back",
				"decided at 40ms by 0 of 2, delay 10ms, error false"},
			outcome: stats.Outcome{Attempts: 2, Delay: 10 * ms, Reason: stats.PushedBack}},
		{name: "throttled", steps: []step{answers(40 * ms)}, options: with{hedgetest.Throttle(1, 0.001)},
			before: func(t *testing.T, s *hedge.Scheduler) {
				_ = (&stub{steps: []step{fails(0, codes.Unavailable)}}).callBy(unary, t.Context(), s, wrapperspb.Int64(0))
			},
			events: []string{"held back 1 at 10ms: throttled"}, outcome: alone(stats.Throttled)},
		{name: "paused meanwhile", steps: []step{answers(40 * ms)},
			before: func(_ *testing.T, s *hedge.Scheduler) { time.AfterFunc(ms, s.Pause) },
			events: []string{"held back 1 at 10ms: paused"}, outcome: alone(stats.Paused)},
		{name: "paused before", steps: []step{answers(40 * ms)}, before: func(_ *testing.T, s *hedge.Scheduler) { s.Pause() },
			outcome: stats.Outcome{Attempts: 1, Reason: stats.Paused}},
		{name: "the budget is empty", steps: []step{answers(14 * ms)}, options: with{hedge.WithBudgetPercent(0.001)},
			before: func(t *testing.T, s *hedge.Scheduler) { // the bucket begins with one token
				st := &stub{steps: []step{answers(40 * ms), answers(ms)}}
				_ = st.callBy(unary, t.Context(), s, wrapperspb.Int64(0), hedge.After(0))
			},
			events: []string{"held back 1 at 10ms: budget exhausted"}, outcome: alone(stats.BudgetExhausted)},
	}
	for reason, option := range map[stats.Reason]hedge.Option{stats.SwitchedOff: hedge.WithOff(true),
		stats.DryRun: hedge.WithDryRun(true), stats.NoHedgesConfigured: hedge.WithMaxHedges(0),
		stats.Warmup: hedge.WithWarmup(20, 0)} {
		stories = append(stories, story{name: string(reason), steps: []step{answers(40 * ms)},
			options: with{option}, outcome: stats.Outcome{Attempts: 1, Reason: reason}})
	}
	for _, tc := range stories {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			var w told
			var made *hedge.Scheduler
			trace := w.trace()
			trace.Made = func(s *hedge.Scheduler) { made = s }
			s := hedgetest.Fixed(t, 10*ms, append(with{hedge.WithTrace(trace)}, tc.options...)...)
			if made != s {
				t.Error("Made was not called with the scheduler")
			}
			if tc.before != nil {
				tc.before(t, s)
				synctest.Wait()
			}
			w.lines = nil
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.timeout, time.Hour))
			defer cancel()
			var outcome stats.Outcome
			_ = (&stub{steps: tc.steps, request: tc.request}).callBy(d, ctx, s, wrapperspb.Int64(0),
				hedge.Report(&outcome), hedge.Report(nil))
			synctest.Wait()
			if !slices.Equal(w.lines, tc.events) {
				t.Errorf("told\n\t%s\nwant\n\t%s", strings.Join(w.lines, "\n\t"), strings.Join(tc.events, "\n\t"))
			}
			if outcome != tc.outcome {
				t.Errorf("outcome %+v, want %+v", outcome, tc.outcome)
			}
		})
	}
}

// TestTrace_ABlockedFunctionDelaysItsOwnCall has each function in turn block the first call.
func TestTrace_ABlockedFunctionDelaysItsOwnCall(t *testing.T) {
	for _, name := range []string{"HedgeSent", "HedgeHeldBack", "AttemptLost", "CallDecided"} {
		hedgetest.Run(t, name, func(t *testing.T) {
			var once atomic.Bool
			s := hedgetest.Fixed(t, 10*ms, hedgetest.Throttle(1000, 1),
				hedge.WithTrace(traceTo(func(function, _ string) {
					if function == name && !once.Swap(true) {
						time.Sleep(time.Second)
					}
				})))
			call := func() time.Duration {
				began := time.Now()
				st := &stub{steps: []step{answers(50 * ms), fails(5*ms, codes.Unavailable, "1"), answers(5 * ms)}}
				if err := st.callBy(unary, t.Context(), s, wrapperspb.Int64(0)); err != nil {
					t.Error(err)
				}
				return time.Since(began)
			}
			var blocked sync.WaitGroup
			blocked.Go(func() { call() })
			time.Sleep(30 * ms)
			if took := call(); took != 25*ms {
				t.Errorf("another call took %v", took)
			}
			blocked.Wait()
			time.Sleep(time.Second) // until the function returns
		})
	}
}

// TestTrace_APanicIsTheCallers lets each function panic. The contexts of all attempts end all the
// same.
func TestTrace_APanicIsTheCallers(t *testing.T) {
	three := []step{answers(50 * ms), fails(ms, codes.Unavailable, "1"), answers(ms)}
	for _, tc := range []struct {
		name, function string
		steps          []step
	}{
		{"a hedge is sent", "HedgeSent", three},
		{"a hedge is held back", "HedgeHeldBack", three},
		{"an attempt is lost", "AttemptLost", three},
		{"decided by the last", "CallDecided", three},
		{"decided by the primary", "CallDecided", []step{answers(15 * ms), answers(time.Second)}},
		{"decided by the hedge", "CallDecided", []step{answers(time.Second), answers(5 * ms)}},
	} {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			st := &stub{steps: tc.steps}
			s := hedgetest.Fixed(t, 10*ms, hedgetest.Throttle(1000, 1),
				hedge.WithTrace(traceTo(func(function, _ string) {
					if function == tc.function {
						panic(function)
					}
				})))
			value := func() (v any) {
				defer func() { v = recover() }()
				return st.callBy(d, t.Context(), s, wrapperspb.Int64(0))
			}()
			if p, ok := value.(*hedge.Panic); ok {
				value = p.Value
			}
			if value != tc.function {
				t.Errorf("the caller recovered %v", value)
			}
			time.Sleep(time.Minute)
			for _, a := range st.sent() {
				if a.ctx.Err() == nil || a.ended.IsZero() {
					t.Errorf("attempt %d, or its context, has not ended", a.number)
				}
			}
		})
	}
}
