package hedge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// kept is what a value keeps of the attempt that made it.
type kept struct {
	attempt int
	ctx     context.Context
	done    <-chan struct{}
	derived context.Context
}

// TestDo_TheWinnersContextLives until its caller's ends, with the same error and cause, and the losers' do not.
func TestDo_TheWinnersContextLives(t *testing.T) {
	for _, tc := range []struct {
		name            string
		opts            []hedge.Option
		primary, hedged time.Duration
		winner          int
		failure         error // of the winner
	}{
		{name: "not hedged", opts: []hedge.Option{hedge.WithMaxHedges(0)}, primary: 5 * ms},
		{name: "no hedge was due", primary: 5 * ms},
		{name: "the primary wins", primary: 15 * ms, hedged: time.Hour},
		{name: "the hedge wins", primary: time.Hour, hedged: 5 * ms, winner: 1},
		{name: "the primary wins with an error", primary: 5 * ms, failure: errors.New("its body says more")},
	} {
		for _, deadline := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s,deadline=%v", tc.name, deadline), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := hedgetest.All(t, append([]hedge.Option{hedge.WithMaxHedges(1), hedge.WithWarmup(1<<30, 10*ms), hedge.WithBudgetPercent(400)}, tc.opts...)...)
					why := errors.New("why")
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					if deadline {
						var stop context.CancelFunc
						ctx, stop = context.WithTimeoutCause(ctx, time.Minute, why)
						defer stop()
					}
					var mu sync.Mutex
					var attempts [2]kept
					got, err := hedge.Do(ctx, s, target, method, func(ctx context.Context) (kept, error) {
						k := kept{attempt: attemptOf(ctx), ctx: ctx, done: ctx.Done()}
						var cancel context.CancelFunc
						k.derived, cancel = context.WithCancel(context.WithValue(ctx, kept{}, "derived"))
						t.Cleanup(cancel)
						mu.Lock()
						attempts[k.attempt] = k
						mu.Unlock()
						if _, err := hedgetest.Taking([]time.Duration{tc.primary, tc.hedged}[k.attempt])(ctx); err != nil {
							return k, err
						}
						return k, tc.failure
					})
					if err != tc.failure || got.attempt != tc.winner {
						t.Fatalf("attempt %d, %v", got.attempt, err)
					}
					synctest.Wait()
					runtime.GC()
					runtime.GC()
					if got.ctx.Err() != nil || got.derived.Err() != nil {
						t.Errorf("the winner's context has ended with the call: %v, %v", got.ctx.Err(), got.derived.Err())
					}
					mu.Lock()
					if loser := attempts[1-tc.winner]; loser.ctx != nil && (loser.ctx.Err() == nil || loser.derived.Err() == nil) {
						t.Error("the loser's context lives on")
					}
					mu.Unlock()

					want := context.Canceled
					if deadline {
						want = context.DeadlineExceeded
						time.Sleep(2 * time.Minute)
					} else {
						cancel(why)
					}
					<-got.done
					<-got.derived.Done()
					for _, c := range []context.Context{got.ctx, got.derived} {
						if c.Err() != want || context.Cause(c) != why {
							t.Errorf("ended with %v because of %v, want %v because of %v", c.Err(), context.Cause(c), want, why)
						}
					}
				})
			})
		}
	}
}

// TestDo_APanicEndsEveryContext of the call, since there is no value that one could serve.
func TestDo_APanicEndsEveryContext(t *testing.T) {
	for panics := range 2 {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t, hedge.WithMaxHedges(1), hedge.WithWarmup(1<<30, 10*ms), hedge.WithBudgetPercent(400))
			var contexts [2]context.Context
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
				synctest.Wait()
				for n, ctx := range contexts {
					if ctx.Err() == nil {
						t.Errorf("attempt %d panics: the context of %d lives on", panics, n)
					}
				}
			}()
			_, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) {
				n := attemptOf(ctx)
				contexts[n] = ctx
				if n == panics {
					_, _ = hedgetest.Taking(20 * ms)(ctx)
					panic("in an attempt")
				}
				return hedgetest.Taking(time.Hour)(ctx)
			})
			t.Errorf("returned %v", err)
		})
	}
}

// TestDo_HTTPBodies reads bodies that come after Do has returned. Of every second request the copy that comes first hangs.
func TestDo_HTTPBodies(t *testing.T) {
	const calls = 60
	before := goleak.IgnoreCurrent()
	var seen sync.Map
	more := strings.Repeat("x", 256<<10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, again := seen.LoadOrStore(r.URL.Path, true); !again && strings.HasSuffix(r.URL.Path, "slow") {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, more) // more than what buffers hold on the way
	}))
	s := hedgetest.All(t, hedge.WithMaxHedges(1), hedge.WithWarmup(1<<30, ms), hedge.WithBudgetPercent(400))
	client := server.Client()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range calls {
		url := fmt.Sprintf("%s/%d/%s", server.URL, i, []string{"fast", "slow"}[i%2])
		response, err := hedge.Do(ctx, s, server.URL, "/http.Server/Get", func(ctx context.Context) (*http.Response, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return nil, err
			}
			return client.Do(request)
		})
		if err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			runtime.GC()
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || len(body) != len(more) {
			t.Errorf("call %d: %d bytes, %v", i, len(body), err)
		}
		response.Body.Close()
	}
	// The copy that hangs is the one that comes first, which is now and then the hedge.
	if got := s.Stats(); got.Hedged < calls/2 || got.HedgeWins == 0 {
		t.Errorf("%+v", got)
	}
	client.CloseIdleConnections()
	server.Close()
	goleak.VerifyNone(t, before)
}

// TestDo_LeavesNothingWithItsCallersContext makes calls, a million with -hedge.long, under one context that never ends, from functions that
// ask for the end of theirs as any that waits does. An ordinary child of that context for each call would stay on the heap.
func TestDo_LeavesNothingWithItsCallersContext(t *testing.T) {
	longtest.Simulation(t)
	s := hedgetest.All(t, hedge.WithWarmup(1<<30, time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked atomic.Int64
	var before uint64
	fn := func(ctx context.Context) (struct{}, error) {
		if ctx.Done() != nil {
			asked.Add(1)
		}
		return struct{}{}, nil
	}
	calls := longtest.Size(20_000, 1_000_000)
	for i := range calls {
		if i == calls/100 {
			before = reachable()
		}
		if _, err := hedge.Do(ctx, s, target, method, fn); err != nil {
			t.Fatal(err)
		}
	}
	grown := int64(reachable()) - int64(before)
	t.Logf("%d calls, %d KiB more on the heap", calls, grown>>10)
	// An ordinary child takes more than 600 bytes.
	if asked.Load() != int64(calls) || grown > 1<<20 {
		t.Errorf("%d asked; %d KiB more", asked.Load(), grown>>10)
	}
}

// reachable returns the bytes on the heap that are in use once cleanups have run.
func reachable() uint64 {
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
