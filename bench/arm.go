package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// arm is one policy in a comparison, while it runs.
type arm struct {
	*comparison
	policy    policy
	targets   []*target // one, or as many as a request calls at once
	scheduler *hedge.Scheduler
	arrivals  []time.Duration // nil: a call begins when a caller is free
	start     atomic.Pointer[time.Time]
	stopped   func() bool
	endSample func()

	began     []time.Duration // of call n at n, after the start
	latencies []time.Duration // likewise
	samples   []sample
	won       atomic.Int64 // calls whose answer is a hedge's
	mu        sync.Mutex   // guards what follows
	failed    int64
	wrong     int64
	firstErr  error
}

// target is the backends behind one target, and a connection to them.
type target struct {
	cluster *testserver.Cluster
	client  testpb.TestServiceClient

	mu     sync.Mutex
	hedges []time.Duration // when each reached a backend, after the start
}

// sample is what was learned at some time of a run.
type sample struct{ at, delay time.Duration }

// startArm starts a policy's backends and connects to them.
func (c *comparison) startArm(ctx context.Context, p policy) (*arm, error) {
	a := &arm{
		comparison: c,
		policy:     p,
		began:      make([]time.Duration, c.calls),
		latencies:  make([]time.Duration, c.calls),
		endSample:  func() {},
	}
	if w := c.workload; w.arrivals != nil {
		a.arrivals = w.arrivals(c.rng(), c.calls)
	}
	dial, scheduler, err := p.dial(c.options)
	if err != nil {
		return nil, err
	}
	a.scheduler = scheduler
	for i := range max(c.workload.fan, 1) {
		if err := a.startTarget(ctx, i, dial); err != nil {
			a.close()
			return nil, err
		}
	}
	return a, nil
}

func (a *arm) startTarget(ctx context.Context, i int, dial []grpc.DialOption) error {
	t := &target{}
	wait := waitExactly
	if a.clock == virtualClock {
		wait = nil
	}
	cluster, err := testserver.Start(testserver.Config{
		Wait:       wait,
		Name:       "target-" + strconv.Itoa(i),
		Backends:   a.backends,
		InMemory:   a.clock == virtualClock,
		Workers:    a.workload.workers,
		Script:     a.script(t),
		Seed:       a.seed,
		DrawByID:   true,
		CountsOnly: !a.keepRecords,
	})
	if err != nil {
		return err
	}
	t.cluster = cluster
	a.targets = append(a.targets, t)
	t.client, err = connect(ctx, cluster, dial)
	return err
}

// script is what a target's backends do; it takes down when hedges arrive.
func (a *arm) script(t *target) testserver.Script {
	run := time.Duration(0)
	if n := len(a.arrivals); n > 0 {
		run = a.arrivals[n-1]
	}
	plan := a.workload.script(a.law, a.seed, a.started, run)
	if plan == nil {
		plan = func(at testserver.Attempt) testserver.Plan { return testserver.Plan{Delay: at.Draw(a.law)} }
	}
	return func(at testserver.Attempt) testserver.Plan {
		if at.Number > 0 {
			t.mu.Lock()
			t.hedges = append(t.hedges, at.Arrival.Sub(a.started()))
			t.mu.Unlock()
		}
		return plan(at)
	}
}

// begin starts the clock of the run.
func (a *arm) begin() {
	now := time.Now()
	a.start.Store(&now)
	if a.arrivals != nil && a.scheduler != nil {
		a.endSample = a.sampleEverySecond()
	}
}

func (a *arm) started() time.Time { return *a.start.Load() }

// sampleEverySecond takes down what was learned, until the function that it returns is called.
func (a *arm) sampleEverySecond() (end func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticks := time.NewTicker(time.Second)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				if targets := a.scheduler.Targets(); len(targets) > 0 {
					a.samples = append(a.samples, sample{time.Since(a.started()), targets[0].Delay})
				}
			case <-quit:
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(quit)
		wg.Wait()
	})
}

// run makes the calls of a slice and returns when all have ended.
func (a *arm) run(ctx context.Context, first, end int, p *progress) {
	if a.stopped == nil {
		a.stopped = func() bool { return ctx.Err() != nil }
	}
	if a.arrivals != nil {
		a.runAsTheyArrive(ctx, first, end, p)
		return
	}
	var next atomic.Int64
	next.Store(int64(first))
	var wg sync.WaitGroup
	for i := range min(a.concurrency, end-first) {
		wg.Go(func() {
			if a.clock == virtualClock { // so that nothing ever happens at the same instant, in an order left to chance
				time.Sleep(time.Duration(i) * 37 * time.Microsecond)
			}
			for !a.stopped() {
				n := int(next.Add(1)) - 1
				if n >= end {
					return
				}
				a.request(ctx, n)
				p.add(1)
			}
		})
	}
	wg.Wait()
}

// runAsTheyArrive begins each call in its time, however many are under way.
func (a *arm) runAsTheyArrive(ctx context.Context, first, end int, p *progress) {
	var wg sync.WaitGroup
	for n := first; n < end && !a.stopped(); n++ {
		time.Sleep(time.Until(a.started().Add(a.arrivals[n])))
		wg.Go(func() {
			a.request(ctx, n)
			p.add(1)
		})
	}
	wg.Wait()
}

// request makes call n, or all calls of request n at once.
func (a *arm) request(ctx context.Context, n int) {
	a.began[n] = time.Since(a.started())
	if len(a.targets) == 1 {
		a.latencies[n] = a.callOnce(ctx, 0, n)
		return
	}
	took := make([]time.Duration, len(a.targets))
	var wg sync.WaitGroup
	for i := range a.targets {
		wg.Go(func() { took[i] = a.callOnce(ctx, i, n*len(a.targets)+i) })
	}
	wg.Wait()
	a.latencies[n] = slices.Max(took)
}

func (a *arm) callOnce(ctx context.Context, target, n int) time.Duration {
	took, attempt, err := a.workload.call(ctx, a.targets[target].client, callID(n))
	if err != nil {
		a.note(n, err)
	} else if attempt > 0 {
		a.won.Add(1)
	}
	return took
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
	a.endSample()
	r := &result{
		policy:    a.policy,
		calls:     a.calls * len(a.targets),
		latencies: a.latencies,
		began:     a.began,
		samples:   a.samples,
		sorted:    slices.Sorted(slices.Values(a.latencies)),
		stats:     a.scheduler.Stats(),
		won:       a.won.Load(),
		failed:    a.failed,
		wrong:     a.wrong,
		firstErr:  a.firstErr,
	}
	for _, t := range a.targets {
		if err := t.cluster.WaitIdle(ctx); err != nil {
			return nil, fmt.Errorf("%d attempts still run at the server: %w", t.cluster.Counts().InFlight, err)
		}
		r.server = sum(r.server, t.cluster.Counts())
		slices.Sort(t.hedges)
		r.hedges = append(r.hedges, t.hedges...)
		if a.policy.budget > 0 && len(a.options) == 0 {
			r.overspent = max(r.overspent, overspent(r.began, t.hedges, a.policy.budget))
		}
	}
	if targets := a.scheduler.Targets(); len(targets) > 0 {
		r.learned = targets[0]
	}
	if a.keepRecords {
		r.records = map[uint64][]testserver.Record{}
		for _, record := range a.targets[0].cluster.Records() {
			r.records[record.ID] = append(r.records[record.ID], record)
		}
	}
	return r, nil
}

func (a *arm) close() {
	a.endSample()
	for _, t := range a.targets {
		t.cluster.Close()
	}
}
