package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
)

// comparison makes the same calls under each of several policies. Call n asks for the same in all of them, and
// its primary takes the same time. Each policy has backends of its own, alike, so that the server can count
// for it.
type comparison struct {
	workload    workload
	law         testserver.Law
	policies    []policy
	options     []hedge.Option // of the policies that have a scheduler
	calls       int            // requests, where a workload makes several calls for each
	concurrency int
	backends    int
	seed        uint64
	clock       clock // the real one if empty

	// atOnce runs the policies at the same time instead of in alternating slices: for calls so few that they do
	// not disturb each other. In virtual time nothing disturbs anything, and it is not looked at.
	atOnce bool
	// keepRecords has the server take notes of every attempt.
	keepRecords bool
}

// sliceSize is how many calls an arm makes before the next one takes its turn: some tenths of a second, of which it
// waits for its last calls a small part; and however few there are, each has some turns.
func (c *comparison) sliceSize() int {
	if c.workload.turn == 0 {
		return c.calls
	}
	return min(max(c.workload.turn*c.concurrency, 50), (c.calls+3)/4)
}

// run makes all calls and returns the results in the order of the policies, and how the machine stood still
// meanwhile. It fails if it could not run, not if calls did.
func (c *comparison) run(ctx context.Context, p *progress) ([]*result, stalls, error) {
	if c.clock == virtualClock {
		results, err := c.runVirtual(ctx, p)
		return results, stalls{}, err
	}
	arms := make([]*arm, 0, len(c.policies))
	defer func() {
		for _, a := range arms {
			a.close()
		}
	}()
	for _, policy := range c.policies {
		a, err := c.startArm(ctx, policy)
		if err != nil {
			return nil, stalls{}, fmt.Errorf("%s: %w", policy.name, err)
		}
		arms = append(arms, a)
	}

	endWatch := watchStalls()
	for _, a := range arms {
		a.begin()
	}
	if c.atOnce {
		var wg sync.WaitGroup
		for _, a := range arms {
			wg.Go(func() { a.run(ctx, 0, c.calls, p) })
		}
		wg.Wait()
	} else {
		for _, s := range alternate(len(arms), c.calls, c.sliceSize()) {
			arms[s.arm].run(ctx, s.first, s.end, p)
		}
	}
	stalled := endWatch()
	if err := ctx.Err(); err != nil {
		return nil, stalled, err
	}

	results := make([]*result, 0, len(arms))
	for _, a := range arms {
		r, err := a.result(ctx)
		if err != nil {
			return nil, stalled, fmt.Errorf("%s: %w", a.policy.name, err)
		}
		results = append(results, r)
	}
	return results, stalled, nil
}

// runVirtual gives each policy a bubble of its own, of which as many run at a time as there are processors: what
// happens in one does not depend on the others.
func (c *comparison) runVirtual(ctx context.Context, p *progress) ([]*result, error) {
	results := make([]*result, len(c.policies))
	errs := make([]error, len(c.policies))
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, policy := range c.policies {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			inBubble(func() { results[i], errs[i] = c.runInBubble(ctx, policy, p) })
			if errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", policy.name, errs[i])
			}
		})
	}
	wg.Wait()
	return results, errors.Join(append(errs, ctx.Err())...)
}

// runInBubble is what happens to one policy in virtual time. Of the context from outside it asks only, and never
// waits, whether it has ended.
func (c *comparison) runInBubble(outside context.Context, policy policy, p *progress) (*result, error) {
	if outside.Err() != nil {
		return nil, nil // whoever started this knows
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
	a.run(ctx, 0, c.calls, p)
	return a.result(ctx)
}

// rng is what a run draws its arrivals from.
func (c *comparison) rng() *rand.Rand { return rand.New(rand.NewPCG(c.seed, 0x6172726976616c73)) }
