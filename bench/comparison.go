package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// comparison makes the same calls under each of several policies. Call n asks for the same in all of them, and
// its primary takes the same time. Each policy has backends of its own, alike, so that the server can count
// for it.
type comparison struct {
	workload    workload
	law         testserver.Law
	policies    []policy
	options     []hedge.Option // of the policies that have a scheduler
	calls       int
	concurrency int
	backends    int
	seed        uint64

	// atOnce runs the policies at the same time instead of in alternating slices: for calls so few that they do
	// not disturb each other.
	atOnce bool
	// keepRecords has the server take notes of every attempt.
	keepRecords bool
}

// result is what became of the calls under one policy.
type result struct {
	policy    string
	latencies []time.Duration // of call n at n
	sorted    []time.Duration
	server    testserver.Counts
	stats     hedge.Stats
	learned   hedge.TargetStats
	records   map[uint64][]testserver.Record // by id; nil unless kept
	failed    int64
	wrong     int64
	firstErr  error
}

func (r *result) percentile(q float64) time.Duration { return quantile(r.sorted, q) }

// extraLoad is the attempts that the server saw beyond the calls, as a share of the calls.
func (r *result) extraLoad() float64 {
	calls := float64(len(r.latencies))
	return (float64(r.server.Attempts) - calls) / calls
}

// err says what was wrong with the calls.
func (r *result) err() error {
	if r.failed+r.wrong == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d failed calls, %d wrong replies; the first: %w", r.policy, r.failed, r.wrong, r.firstErr)
}

// sliceSize is how many calls an arm makes before the next one takes its turn: some tenths of a second, of which it
// waits for its last calls a small part; and however few there are, each has some turns.
func (c *comparison) sliceSize() int {
	return min(max(c.workload.turn*c.concurrency, 50), (c.calls+3)/4)
}

// run makes all calls and returns the results in the order of the policies, and how the machine stood still
// meanwhile. It fails if it could not run, not if calls did.
func (c *comparison) run(ctx context.Context, p *progress) ([]*result, stalls, error) {
	arms := make([]*arm, 0, len(c.policies))
	defer func() {
		for _, a := range arms {
			a.cluster.Close()
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

// arm is one policy in a comparison, while it runs.
type arm struct {
	*comparison
	policy    policy
	cluster   *testserver.Cluster
	client    testpb.TestServiceClient
	scheduler *hedge.Scheduler

	latencies []time.Duration
	mu        sync.Mutex // guards what follows
	failed    int64
	wrong     int64
	firstErr  error
}

// startArm starts a policy's backends and connects to them.
func (c *comparison) startArm(ctx context.Context, p policy) (*arm, error) {
	config := testserver.Config{
		Backends:   c.backends,
		Latency:    c.law,
		Seed:       c.seed,
		DrawByID:   true,
		CountsOnly: !c.keepRecords,
	}
	if plan := c.workload.plan; plan != nil {
		config.Script = func(a testserver.Attempt) testserver.Plan { return plan(a.Draw(c.law)) }
	}
	cluster, err := testserver.Start(config)
	if err != nil {
		return nil, err
	}
	a := &arm{comparison: c, policy: p, cluster: cluster, latencies: make([]time.Duration, c.calls)}
	a.client, a.scheduler, err = connect(ctx, cluster, p, c.options)
	if err != nil {
		cluster.Close()
		return nil, err
	}
	return a, nil
}

// connect returns a client that follows a policy. It has a connection, so that no call waits for one.
func connect(ctx context.Context, cluster *testserver.Cluster, p policy, options []hedge.Option) (testpb.TestServiceClient, *hedge.Scheduler, error) {
	dial, scheduler, err := p.dial(options)
	if err != nil {
		return nil, nil, err
	}
	conn, err := cluster.Client(dial...)
	if err != nil {
		return nil, nil, err
	}
	if err := ready(ctx, conn); err != nil {
		return nil, nil, err
	}
	return testpb.NewTestServiceClient(conn), scheduler, nil
}

func ready(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn.Connect()
	for {
		state := conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("no connection: %w", ctx.Err())
		}
	}
}

// run makes the calls of a slice, as many at a time as the comparison says, and returns when all have ended.
func (a *arm) run(ctx context.Context, first, end int, p *progress) {
	var next atomic.Int64
	next.Store(int64(first))
	var wg sync.WaitGroup
	for range min(a.concurrency, end-first) {
		wg.Go(func() {
			for ctx.Err() == nil {
				n := int(next.Add(1)) - 1
				if n >= end {
					return
				}
				took, err := a.workload.call(ctx, a.client, callID(n))
				a.latencies[n] = took
				if err != nil {
					a.note(n, err)
				}
				p.add(1)
			}
		})
	}
	wg.Wait()
}

// callID is the id of the request of call n.
func callID(n int) uint64 { return uint64(n) + 1 }

// note counts a call that failed or got a wrong reply.
func (a *arm) note(n int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if errors.As(err, new(wrongReply)) {
		a.wrong++
	} else {
		a.failed++
	}
	if a.firstErr == nil {
		a.firstErr = fmt.Errorf("call %d with seed %d: %w", n, a.seed, err)
	}
}

// result gathers what is known once all calls have ended.
func (a *arm) result(ctx context.Context) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := a.cluster.WaitIdle(ctx); err != nil {
		return nil, fmt.Errorf("%d attempts still run at the server: %w", a.cluster.Counts().InFlight, err)
	}
	r := &result{
		policy:    a.policy.name,
		latencies: a.latencies,
		sorted:    slices.Sorted(slices.Values(a.latencies)),
		server:    a.cluster.Counts(),
		stats:     a.scheduler.Stats(),
		failed:    a.failed,
		wrong:     a.wrong,
		firstErr:  a.firstErr,
	}
	if targets := a.scheduler.Targets(); len(targets) > 0 {
		r.learned = targets[0]
	}
	if a.keepRecords {
		r.records = map[uint64][]testserver.Record{}
		for _, record := range a.cluster.Records() {
			r.records[record.ID] = append(r.records[record.ID], record)
		}
	}
	return r, nil
}
