package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	_ "github.com/grpchedge/hedge/balancer" // hedge_other_backend
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/progress"
	"github.com/grpchedge/hedge/bench/workload"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// arm is one policy of a comparison while it runs.
type arm struct {
	*Comparison
	policy    policy.Policy
	targets   []*target           // one, or as many as a request calls at once
	second    *testserver.Cluster // the second destination; nil: none
	scheduler *hedge.Scheduler    // of the first client
	transport http.RoundTripper   // of an HTTP workload
	listener  net.Listener        // likewise
	callers   []int               // the client of call n at n; nil where there is one client
	arrivals  []time.Duration     // nil: a call begins when a caller is free
	start     atomic.Pointer[time.Time]
	stopped   func() bool
	endSample func()
	endBusy   func()

	began     []time.Duration // of call n at n, after the start
	latencies []time.Duration // likewise
	late      []bool          // likewise: it failed, where calls may fail; nil elsewhere
	samples   []sample
	busy      []time.Duration // of a fleet's servers, up to the end of each step
	mu        sync.Mutex      // guards what follows
	failed    int64
	wrong     int64
	firstErr  error
}

// target is the backends behind one target, and clients of them.
type target struct {
	stop    func() // ends the gateway; nil: none
	cluster *testserver.Cluster
	clients []*client

	mu     sync.Mutex
	hedges []arrived
}

// client makes calls with a scheduler of its own.
type client struct {
	testpb.TestServiceClient
	won  atomic.Int64 // calls that a hedge answered
	turn atomic.Uint32
}

// arrived is a hedge that reached a backend, at a time after the start.
type arrived struct {
	at time.Duration
	id uint64
}

// sample is the delay that was learned at a time of a run.
type sample struct{ at, delay time.Duration }

// startArm starts a policy's backends and connects to them.
func (c *Comparison) startArm(ctx context.Context, p policy.Policy) (*arm, error) {
	a := &arm{
		Comparison: c,
		policy:     p,
		began:      make([]time.Duration, c.Calls),
		latencies:  make([]time.Duration, c.Calls),
		endSample:  func() {},
		endBusy:    func() {},
	}
	for range max(c.Workload.Fan, 1) {
		a.targets = append(a.targets, &target{})
	}
	if w := c.Workload; w.Arrivals != nil {
		a.arrivals = w.Arrivals(c.rng(), c.Calls)
	}
	if f := c.Workload.Fleet; f != nil {
		a.callers = f.Callers(c.rng(), c.Calls)
	}
	if c.Workload.Fleet != nil || c.Workload.Second {
		a.late = make([]bool, c.Calls)
	}
	var dial []grpc.DialOption
	var err error
	if c.Workload.HTTP {
		if a.listener, err = listen(c.Clock); err == nil {
			a.transport, a.scheduler, err = transportOf(p, c.Options, a.listener)
		}
	} else {
		dial, err = a.dial(ctx)
	}
	if err != nil {
		a.close()
		return nil, err
	}
	scheduler := a.scheduler
	if c.Watch != nil && scheduler != nil {
		c.Watch(scheduler)
	}
	for i := range a.targets {
		if err := a.startTarget(ctx, i, dial); err != nil {
			a.close()
			return nil, err
		}
	}
	return a, nil
}

// hedgesElsewhere is the service config of workloads with hedges to another backend.
const hedgesElsewhere = `{"loadBalancingConfig": [{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`

func (a *arm) startTarget(ctx context.Context, i int, dial []grpc.DialOption) error {
	t := a.targets[i]
	cluster, err := a.startCluster("target-"+strconv.Itoa(i), t, 0)
	if err != nil {
		return err
	}
	t.cluster = cluster
	if a.Workload.Elsewhere {
		dial = append(slices.Clip(dial), grpc.WithDefaultServiceConfig(hedgesElsewhere))
	}
	if a.Workload.Fleet != nil {
		return a.connectFleet(ctx, t, dial)
	}
	c, err := Connect(ctx, cluster, dial)
	if err == nil && a.Workload.HTTP {
		c, t.stop = gatewayTo(c, a.listener, a.transport)
	}
	t.clients = []*client{{TestServiceClient: c}}
	return err
}

// script scripts the backends of a target's destination, and records the arrival of hedges.
func (a *arm) script(t *target, destination int) testserver.Script {
	run := time.Duration(0)
	if n := len(a.arrivals); n > 0 {
		run = a.arrivals[n-1]
	}
	plan := a.Workload.Script(a.Distribution, a.Seed, destination, a.started, run)
	if plan == nil {
		plan = func(at testserver.Attempt) testserver.Plan { return testserver.Plan{Delay: at.Draw(a.Distribution)} }
	}
	return func(at testserver.Attempt) testserver.Plan {
		if at.Number > 0 {
			t.mu.Lock()
			t.hedges = append(t.hedges, arrived{at.Arrival.Sub(a.started()), at.ID})
			t.mu.Unlock()
		}
		return plan(at)
	}
}

// begin starts the clock of the run.
func (a *arm) begin() {
	now := time.Now()
	a.start.Store(&now)
	if a.Workload.HasCourse() && a.scheduler != nil {
		a.endSample = a.sampleEverySecond()
	}
	if a.Workload.Fleet != nil {
		a.endBusy = a.watchBusy()
	}
}

func (a *arm) started() time.Time { return *a.start.Load() }

// sampleEverySecond samples the learned state every second until end is called.
func (a *arm) sampleEverySecond() (end func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticks := time.NewTicker(time.Second)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				if targets := a.scheduler.Methods(); len(targets) > 0 {
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
func (a *arm) run(ctx context.Context, first, end int, p *progress.Progress) {
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
	for i := range min(a.Concurrency, end-first) {
		wg.Go(func() {
			if a.Clock == workload.VirtualClock { // so that nothing ever happens at the same instant, in an order left to chance
				time.Sleep(time.Duration(i) * 37 * time.Microsecond)
			}
			for !a.stopped() {
				n := int(next.Add(1)) - 1
				if n >= end {
					return
				}
				a.request(ctx, n)
				p.Add(1)
			}
		})
	}
	wg.Wait()
}

// runAsTheyArrive starts each call at its time, however many are in flight.
func (a *arm) runAsTheyArrive(ctx context.Context, first, end int, p *progress.Progress) {
	var wg sync.WaitGroup
	for n := first; n < end && !a.stopped(); n++ {
		time.Sleep(time.Until(a.started().Add(a.arrivals[n])))
		wg.Go(func() {
			a.request(ctx, n)
			p.Add(1)
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
	c := a.targets[target].clients[0]
	if a.callers != nil {
		c = a.targets[target].clients[a.callers[n]]
		var cancel context.CancelFunc
		ctx, cancel = c.inFleet(ctx, a.Workload.Fleet)
		defer cancel()
	}
	took, attempt, err := a.Workload.Call(ctx, c, workload.CallID(n))
	switch {
	case a.late != nil && missedDeadline(err):
		a.late[n] = true
	case a.Workload.Second && err != nil && !errors.As(err, new(workload.WrongReply)):
		a.late[n], took = true, workload.FailedTakes
	case err != nil:
		a.note(n, err)
	case attempt > 0:
		c.won.Add(1)
	}
	return took
}

// note counts a call that failed or returned a wrong reply.
func (a *arm) note(n int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if errors.As(err, new(workload.WrongReply)) {
		a.wrong++
	} else {
		a.failed++
	}
	if a.firstErr == nil {
		a.firstErr = fmt.Errorf("call %d with seed %d: %w", n, a.Seed, err)
	}
}

// result collects the measurements once all calls have ended.
func (a *arm) result(ctx context.Context) (*Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	a.endSample()
	a.endBusy()
	r := &Result{
		Policy:    a.policy,
		Calls:     a.Calls * len(a.targets),
		Latencies: a.latencies,
		Began:     a.began,
		Late:      a.late,
		busy:      a.busy,
		samples:   a.samples,
		Sorted:    slices.Sorted(slices.Values(a.latencies)),
		Stats:     a.scheduler.Stats(),
		Failed:    a.failed,
		Wrong:     a.wrong,
		FirstErr:  a.firstErr,
	}
	for _, cluster := range a.clusters() {
		if err := cluster.WaitIdle(ctx); err != nil {
			return nil, fmt.Errorf("%d attempts still run at the server: %w", cluster.Counts().InFlight, err)
		}
		r.Server = sum(r.Server, cluster.Counts())
	}
	for _, t := range a.targets {
		for _, c := range t.clients {
			r.Won += c.won.Load()
		}
		for _, h := range t.hedges {
			r.hedges = append(r.hedges, h.at)
		}
		if a.policy.Budget > 0 && len(a.Options) == 0 {
			r.Overspent = max(r.Overspent, a.overspent(t))
		}
	}
	if targets := a.scheduler.Methods(); len(targets) > 0 {
		r.Learned = targets[0]
	}
	if a.KeepRecords {
		r.Records = map[uint64][]testserver.Record{}
		for _, record := range a.targets[0].cluster.Records() {
			r.Records[record.ID] = append(r.Records[record.ID], record)
		}
	}
	return r, nil
}

func (a *arm) close() {
	a.endSample()
	for _, t := range a.targets {
		if t.stop != nil {
			t.stop()
		}
	}
	for _, cluster := range a.clusters() {
		cluster.Close()
	}
}
