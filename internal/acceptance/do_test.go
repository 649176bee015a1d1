package acceptance_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

// TestDo_RejectedValues keeps the context of a rejected value alive while it may still be
// delivered, and no longer.
func TestDo_RejectedValues(t *testing.T) {
	for want, good := range []int{-1, 1} { // the attempt with a good value; -1: none
		synctest.Test(t, func(t *testing.T) {
			acceptable := hedge.WithAcceptable(func(_ context.Context, _ string, value any, _ error) bool {
				return simulation.AttemptOf(value.(context.Context)) == good
			})
			s := hedgetest.Fixed(t, 10*ms, acceptable, hedge.WithMaxHedges(1))
			attempts := make([]context.Context, 2)
			value, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (context.Context, error) {
				time.Sleep(5 * ms)
				attempts[simulation.AttemptOf(ctx)] = ctx
				if primary := attempts[0]; primary.Err() != nil {
					t.Errorf("while the hedge ran, the context of the rejected value ended: %v", primary.Err())
				}
				return ctx, nil
			})
			synctest.Wait()
			if err != nil || value != attempts[want] || value.Err() != nil || attempts[1-want].Err() == nil {
				t.Errorf("%v, want the value of attempt %d; the contexts: %v", err, want, attempts)
			}
		})
	}
}

// TestNewContext has contexts within contexts, and calls under an attempt's. internal/settings tests
// one context against the options of a call.
func TestNewContext(t *testing.T) {
	type key struct{}
	under := hedge.NewContext
	after := under(t.Context(), hedge.After(ms))
	derived := context.WithValue(after, key{}, 1)
	var attempts context.Context
	_, _ = hedge.Do(after, hedgetest.All(t), target, method, func(ctx context.Context) (int, error) {
		if simulation.AttemptOf(ctx) == 0 { // a machine that stalls for a millisecond sends a hedge
			attempts = ctx
		}
		return 0, nil
	})
	for name, tc := range map[string]struct {
		ctx  context.Context
		want time.Duration // -1: never
	}{
		"derived":                          {derived, ms},
		"an attempt's":                     {attempts, ms},
		"the inner context counts":         {under(derived, hedge.After(2*ms)), 2 * ms},
		"an inner context without options": {under(after), ms},
		"Off in an inner context":          {under(after, hedge.Off()), -1},
		"options of others":                {under(t.Context(), hedge.After(ms), grpc.WaitForReady(true), nil), ms},
	} {
		c := hcall.Begin((*registry.Registry)(hedgetest.All(t)), tc.ctx, target, method, nil)
		delay := time.Duration(-1)
		if c.Hedged {
			delay = c.Plan().Due
		}
		if delay != tc.want {
			t.Errorf("%s: hedged after %v, want %v", name, delay, tc.want)
		}
	}
}

// kept is a value's record of the attempt that made it.
type kept struct {
	attempt      int
	ctx, derived context.Context
}

// TestDo_TheWinnersContextLives: the winner's context lives until its caller's ends, with the same
// error and cause, and the losers' do not. Do returns the winner's value and error as soon as it
// has them.
func TestDo_TheWinnersContextLives(t *testing.T) {
	type times = [2]time.Duration
	failure := errors.New("without a status")
	for _, tc := range []struct {
		name   string
		hedges int
		takes  times // of the primary and the hedge
		fails  [2]error
		winner int
		at     time.Duration
	}{
		{name: "not hedged", takes: times{50 * ms}, at: 50 * ms},
		{name: "no hedge was due", hedges: 1, takes: times{5 * ms}, at: 5 * ms},
		{name: "the primary wins", hedges: 1, takes: times{15 * ms, time.Hour}, at: 15 * ms},
		{name: "the hedge wins", hedges: 1, takes: times{time.Hour, 5 * ms}, winner: 1, at: 15 * ms},
		{name: "the primary fails early", hedges: 1, takes: times{5 * ms}, fails: [2]error{failure}, at: 5 * ms},
		// For a stream alone it is an end without a message.
		{name: "io.EOF is a failure", hedges: 1, takes: times{5 * ms}, fails: [2]error{io.EOF}, at: 5 * ms},
		{name: "the hedge fails", hedges: 1, takes: times{50 * ms, 5 * ms}, fails: [2]error{nil, failure}, at: 50 * ms},
		{name: "all fail", hedges: 1, takes: times{50 * ms, 5 * ms},
			fails: [2]error{failure, errors.New("second")}, at: 50 * ms},
	} {
		for want, deadline := range map[error]time.Duration{context.Canceled: time.Hour,
			context.DeadlineExceeded: time.Minute} {
			hedgetest.Run(t, fmt.Sprintf("%s,%v", tc.name, want), func(t *testing.T) {
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(tc.hedges),
					hedge.WithAcceptable(func(_ context.Context, _ string, _ any, err error) bool { return err == nil }))
				why := errors.New("why")
				ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), kept{}, "value"))
				defer cancel(nil)
				ctx, stop := context.WithTimeoutCause(ctx, deadline, why)
				defer stop()
				var mu sync.Mutex
				var attempts [2]kept
				began := time.Now()
				got, err := hedge.Do(ctx, s, target, method, func(ctx context.Context) (kept, error) {
					k := kept{attempt: simulation.AttemptOf(ctx), ctx: ctx}
					var cancel context.CancelFunc
					k.derived, cancel = context.WithCancel(ctx)
					t.Cleanup(cancel)
					mu.Lock()
					attempts[k.attempt] = k
					mu.Unlock()
					_, err := hedgetest.Taking(tc.takes[k.attempt])(ctx)
					return k, cmp.Or(err, tc.fails[k.attempt])
				})
				if err != tc.fails[tc.winner] || got.attempt != tc.winner || time.Since(began) != tc.at ||
					got.ctx.Value(kept{}) != "value" {
					t.Fatalf("attempt %d, %v after %v", got.attempt, err, time.Since(began))
				}
				synctest.Wait()
				runtime.GC()
				runtime.GC()
				if got.ctx.Err() != nil || got.derived.Err() != nil {
					t.Errorf("the winner's context has ended with the call: %v, %v", got.ctx.Err(), got.derived.Err())
				}
				mu.Lock()
				if loser := attempts[1-tc.winner]; loser.ctx != nil && (loser.ctx.Err() == nil || loser.derived.Err() == nil) {
					t.Error("the loser's context has not ended")
				}
				mu.Unlock()
				if time.Sleep(2 * time.Minute); want == context.Canceled {
					cancel(why)
				}
				<-got.derived.Done()
				for _, c := range []context.Context{got.ctx, got.derived} {
					if c.Err() != want || context.Cause(c) != why {
						t.Errorf("ended with %v because of %v, want %v because of %v", c.Err(), context.Cause(c), want, why)
					}
				}
			})
		}
	}
}

// TestDo_APanicEndsEveryContext: a panic ends every context of the call, because no value needs
// one.
func TestDo_APanicEndsEveryContext(t *testing.T) {
	for panics := range 2 {
		synctest.Test(t, func(t *testing.T) {
			var contexts [2]context.Context
			defer func() {
				p := recover()
				synctest.Wait()
				for n, ctx := range contexts {
					if p == nil || ctx.Err() == nil {
						t.Errorf("attempt %d panics, caught %v: the context of %d has not ended", panics, p, n)
					}
				}
			}()
			_, _ = hedge.Do(t.Context(), hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), target, method,
				func(ctx context.Context) (int, error) {
					n := simulation.AttemptOf(ctx)
					if contexts[n] = ctx; n == panics {
						_, _ = hedgetest.Taking(20 * ms)(ctx)
						panic("in an attempt")
					}
					return hedgetest.Taking(time.Hour)(ctx)
				})
		})
	}
}

// TestDo_LeavesNothingWithItsCallersContext makes calls, a million with HEDGE_TESTS=long, under one
// context that never ends, from functions that ask for the end of theirs as any that waits does. An
// ordinary child of that context for each call would stay on the heap, with more than 600 bytes.
func TestDo_LeavesNothingWithItsCallersContext(t *testing.T) {
	longtest.Simulation(t)
	s := hedgetest.All(t, hedge.WithWarmup(1<<30, time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits := func(ctx context.Context) (bool, error) { return ctx.Done() != nil, nil }
	var before uint64
	calls := longtest.Size(20_000, 1_000_000)
	for i := range calls {
		if i == calls/100 {
			before = testserver.Heap()
		}
		if ends, err := hedge.Do(ctx, s, target, method, waits); err != nil || !ends {
			t.Fatal(ends, err)
		}
	}
	if grown := int64(testserver.Heap()) - int64(before); grown > 1<<20 {
		t.Errorf("%d calls, %d KiB more on the heap", calls, grown>>10)
	}
}

// providers are functions of hedge.Do that note who was asked.
type providers struct {
	mu    sync.Mutex
	asked []string
}

// attempt takes d, and fails with the code unless it is OK.
func (p *providers) attempt(name string, d time.Duration, code codes.Code) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		p.mu.Lock()
		p.asked = append(p.asked, name)
		p.mu.Unlock()
		if _, err := hedgetest.Taking(d)(ctx); err != nil {
			return "", err
		}
		return name, status.Error(code, name)
	}
}

// TestDo_Elsewhere has hedges call functions of their own. A nil function is no destination.
func TestDo_Elsewhere(t *testing.T) {
	const ok, down, quota = codes.OK, codes.Unavailable, codes.ResourceExhausted
	for _, tc := range []struct {
		name  string
		times [3]time.Duration // of a, b, c
		code  [3]codes.Code
		want  string
		asked []string
	}{
		{name: "a answers", times: [3]time.Duration{5 * ms}, want: "a", asked: []string{"a"}},
		{name: "b answers", times: [3]time.Duration{time.Hour, 5 * ms}, want: "b", asked: []string{"a", "b"}},
		{name: "a and b fail", code: [3]codes.Code{down, down, ok}, want: "c", asked: []string{"a", "b", "c"}},
		{name: "all fail but b, later", times: [3]time.Duration{0, time.Second}, code: [3]codes.Code{down, ok, down},
			want: "b", asked: []string{"a", "b", "c", "b"}},
		{name: "a and b have no quota", code: [3]codes.Code{quota, quota, ok}, want: "c", asked: []string{"a", "b", "c"}},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithFailover(down, quota), hedge.WithMaxHedges(3))
			var p providers
			got, err := hedge.Do(t.Context(), s, "llm", "/llm/Chat", p.attempt("a", tc.times[0], tc.code[0]),
				p.attempt("b", tc.times[1], tc.code[1]), nil, p.attempt("c", tc.times[2], tc.code[2]))
			if synctest.Wait(); got != tc.want || err != nil || !slices.Equal(p.asked, tc.asked) {
				t.Errorf("%q, %v from %v, want %q from %v", got, err, p.asked, tc.want, tc.asked)
			}
			for _, m := range s.Methods() {
				hedges := map[string]int64{"llm#2": 0, "llm#3": 0}
				for n := 1; n < len(tc.asked); n++ {
					hedges[fmt.Sprintf("llm#%d", 2+(n-1)%2)]++
				}
				if m.Received != hedges[m.Target] {
					t.Errorf("%s received %d hedges, want %d", m.Target, m.Received, hedges[m.Target])
				}
			}
		})
	}
}

// TestDo_LearnsElsewhere has 5% of the calls stall, at a destination whose hedges take far longer
// than primaries, and at one where they do not. With slow hedges, the plan expects no gain from the
// latency of primaries.
func TestDo_LearnsElsewhere(t *testing.T) {
	saved := func(hedgeTakes time.Duration) (saved float64, received int64) {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t)
			for n := range 4000 {
				takes := 10 * ms
				if n%20 == 0 {
					takes = 200 * ms
				}
				_, err := hedge.Do(t.Context(), s, "a", "/s/M", hedgetest.Taking(takes), hedgetest.Taking(hedgeTakes))
				if err != nil {
					t.Error(err)
				}
			}
			for _, m := range s.Methods() {
				if received += m.Received; m.Target == "a" {
					saved = m.Choice.Saved
				}
			}
		})
		return saved, received
	}
	fast, sent := saved(10 * ms)
	slow, few := saved(500 * ms)
	if fast < 0.5 || slow > 0.1 || sent < 100 || few > sent {
		t.Errorf("predicted savings are %.2f with fast hedges and %.2f with slow ones, after %d and %d hedges; want more "+
			"than .5, less than .1", fast, slow, sent, few)
	}
}
