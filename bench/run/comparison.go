// Package run makes the calls of a workload under several policies and returns the measurements. A
// run uses loopback sockets in real time, or memory in virtual time.
package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/progress"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/testserver"
)

// Comparison makes the same calls under each of several policies. Call n sends the same request
// under all of them, and its primary takes the same time. Each policy has backends of its own, all
// alike, so that its attempts can be counted at the server.
type Comparison struct {
	Workload     workload.Workload
	Distribution testserver.Distribution
	Policies     []policy.Policy
	Options      []hedge.Option // of the policies that have a scheduler
	Calls        int            // requests, where a workload makes several calls for each
	Concurrency  int
	Backends     int
	Seed         uint64
	Clock        workload.Clock // the real one if empty

	// AtOnce runs the policies at the same time instead of in alternating slices, for call rates
	// too low to disturb each other. It has no effect in virtual time.
	AtOnce bool
	// Watch, if not nil, is called with each policy's scheduler before its calls.
	Watch func(*hedge.Scheduler)
	// KeepRecords makes the server record every attempt.
	KeepRecords bool
}

// SliceSize is how many calls an arm makes before the next one has its turn: some tenths of a
// second, so that waiting for the last calls is a small part of it. Each arm has several turns,
// however few calls there are.
func (c *Comparison) SliceSize() int {
	if c.Workload.Turn == 0 {
		return c.Calls
	}
	return min(max(c.Workload.Turn*c.Concurrency, 50), (c.Calls+3)/4)
}

// Run makes all calls and returns the results in the order of the policies, and the machine's
// stalls. Its error explains why the run could not be made; failed calls are in the results.
func (c *Comparison) Run(ctx context.Context, p *progress.Progress) ([]*Result, Stalls, error) {
	if c.Clock == workload.VirtualClock {
		results, err := c.runVirtual(ctx, p)
		return results, Stalls{}, err
	}
	arms := make([]*arm, 0, len(c.Policies))
	defer func() {
		for _, a := range arms {
			a.close()
		}
	}()
	for _, policy := range c.Policies {
		a, err := c.startArm(ctx, policy)
		if err != nil {
			return nil, Stalls{}, fmt.Errorf("%s: %w", policy.Name, err)
		}
		arms = append(arms, a)
	}

	endWatch := watchStalls()
	for _, a := range arms {
		a.begin()
	}
	if c.AtOnce {
		var wg sync.WaitGroup
		for _, a := range arms {
			wg.Go(func() { a.run(ctx, 0, c.Calls, p) })
		}
		wg.Wait()
	} else {
		for _, s := range alternate(len(arms), c.Calls, c.SliceSize()) {
			arms[s.arm].run(ctx, s.first, s.end, p)
		}
	}
	stalled := endWatch()
	if err := ctx.Err(); err != nil {
		return nil, stalled, err
	}

	results := make([]*Result, 0, len(arms))
	for _, a := range arms {
		r, err := a.result(ctx)
		if err != nil {
			return nil, stalled, fmt.Errorf("%s: %w", a.policy.Name, err)
		}
		results = append(results, r)
	}
	return results, stalled, nil
}

// runVirtual runs each policy in a bubble of its own, as many at a time as there are processors. No
// bubble depends on another.
func (c *Comparison) runVirtual(ctx context.Context, p *progress.Progress) ([]*Result, error) {
	results := make([]*Result, len(c.Policies))
	errs := make([]error, len(c.Policies))
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, policy := range c.Policies {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			inBubble(func() { results[i], errs[i] = c.runInBubble(ctx, policy, p) })
			if errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", policy.Name, errs[i])
			}
		})
	}
	wg.Wait()
	return results, errors.Join(append(errs, ctx.Err())...)
}

// runInBubble runs one policy in virtual time. It only polls the context from outside, because
// waiting for it would stop virtual time.
func (c *Comparison) runInBubble(outside context.Context, policy policy.Policy, p *progress.Progress) (*Result, error) {
	if outside.Err() != nil {
		return nil, nil // the caller knows
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a, err := c.startArm(ctx, policy)
	if err != nil {
		return nil, err
	}
	defer a.close()
	a.stopped = func() bool { return outside.Err() != nil }
	a.begin()
	a.run(ctx, 0, c.Calls, p)
	return a.result(ctx)
}

// rng is the source of the arrivals of a run.
func (c *Comparison) rng() *rand.Rand { return rand.New(rand.NewPCG(c.Seed, 0x6172726976616c73)) }
