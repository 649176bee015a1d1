package acceptance_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// simulation is a client whose calls each take what a distribution draws for their attempts, in virtual time and without a
// transport. Its calls come one after the other, so many at a time, or at a rate, whatever they take.
type simulation struct {
	distribution func(id uint64, attempt int, at time.Duration) time.Duration
	calls        int
	concurrency  int                                                  // callers, each with one call after the other; 0: at the rate
	rate         float64                                              // calls a second
	fails        func(id uint64, attempt int, at time.Duration) error // how the server turns an attempt away; nil: it does not
	workers      int                                                  // of a server that serves attempts in the order in which they come; 0: all at once
	methods      int                                                  // that calls go to in turn; 0 is 1
	options      []hedge.Option
	seed         uint64
	every        func(s *hedge.Scheduler, at time.Duration) // once a second
}

// outcome is one call that has ended.
type outcome struct {
	id       uint64
	at       time.Duration // when it began
	took     time.Duration
	attempts int
	err      error
}

// run returns the calls in the order of their ids, from 0, and what the scheduler knew in the end.
func (sim simulation) run(t *testing.T) (calls []outcome, rows []stats.Method) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, sim.options...)
		calls = make([]outcome, sim.calls)
		began := time.Now()
		var queue chan struct{}
		if sim.workers > 0 {
			queue = make(chan struct{}, sim.workers)
		}
		call := func(id uint64) {
			c := &calls[id]
			c.id, c.at = id, time.Since(began)
			var mu sync.Mutex
			name := method
			if sim.methods > 1 {
				name += strconv.Itoa(int(id) % sim.methods)
			}
			_, err := hedge.Do(t.Context(), s, target, name, func(ctx context.Context) (int, error) {
				mu.Lock()
				c.attempts++
				mu.Unlock()
				if sim.fails != nil {
					if err := sim.fails(id, attemptOf(ctx), time.Since(began)); err != nil {
						return 0, err
					}
				}
				d := sim.distribution(id, attemptOf(ctx), time.Since(began))
				if queue == nil {
					return hedgetest.Taking(d)(ctx)
				}
				select {
				case queue <- struct{}{}:
				case <-ctx.Done(): // it leaves the queue
					return 0, ctx.Err()
				}
				time.AfterFunc(d, func() { <-queue }) // but not the worker
				return hedgetest.Taking(d)(ctx)
			})
			if err != nil && sim.fails == nil {
				t.Error(err)
			}
			c.err = err
			c.took = time.Since(began) - c.at
		}
		var group sync.WaitGroup
		if sim.concurrency > 0 {
			var mu sync.Mutex
			next := uint64(0)
			for range sim.concurrency {
				group.Go(func() {
					for {
						mu.Lock()
						id := next
						next++
						mu.Unlock()
						if id >= uint64(sim.calls) {
							return
						}
						call(id)
					}
				})
			}
		} else {
			random := rand.New(rand.NewPCG(sim.seed, 77))
			second := time.Duration(0)
			for id := range uint64(sim.calls) {
				time.Sleep(time.Duration(random.ExpFloat64() / sim.rate * float64(time.Second)))
				group.Go(func() { call(id) })
				if at := time.Since(began); sim.every != nil && at >= second {
					second += time.Second
					sim.every(s, at)
				}
			}
		}
		group.Wait()
		synctest.Wait()
		rows = s.Targets()
	})
	return calls, rows
}

// attemptOf is the number of the attempt that has the context, 0 for the primary.
func attemptOf(ctx context.Context) int {
	md, _ := metadata.FromOutgoingContext(ctx)
	values := md.Get("grpc-previous-rpc-attempts")
	if len(values) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(values[len(values)-1])
	return n
}

// drawing returns what a distribution draws for each attempt, which depends on nothing but the seed, the call and the attempt.
func drawing(distribution testserver.Distribution, seed uint64) func(id uint64, attempt int, at time.Duration) time.Duration {
	return func(id uint64, attempt int, _ time.Duration) time.Duration {
		return distribution.Draw(generator(seed, id, attempt))
	}
}

func generator(seed, id uint64, attempt int) *rand.Rand {
	r := rand.New(rand.NewPCG(seed*0x9e3779b97f4a7c15^id, uint64(attempt)*0xbf58476d1ce4e5b9+seed))
	for range 3 {
		r.Uint64() // neighbouring states begin alike
	}
	return r
}

// tail returns a percentile of what calls took, as a quantile.
func tail(calls []outcome, q float64) time.Duration {
	took := make([]time.Duration, len(calls))
	for i, c := range calls {
		took[i] = c.took
	}
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}

// load is the extra attempts a call.
func load(calls []outcome) float64 {
	extra := 0
	for _, c := range calls {
		extra += c.attempts - 1
	}
	return float64(extra) / float64(len(calls))
}
