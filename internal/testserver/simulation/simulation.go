// Package simulation makes calls in virtual time without a transport: a function sets the latency
// of each attempt, and a whole scheduler decides when hedges are sent. An hour of calls takes one
// or two seconds.
package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// Target and Method are where calls go. With several methods, their names are Method with a number
// from 0 on.
const (
	Target = "dns:///test"
	Method = "/pkg.Svc/Get"
)

// Latency is how long an attempt takes that is sent at a time since the start. Attempt 0 is the
// primary.
type Latency = func(id uint64, attempt int, at time.Duration) time.Duration

// Client makes calls one after the other, some at a time, or at random times, however long they
// take.
type Client struct {
	Latency Latency
	Calls   int           // 0: as many as begin in Lasts
	Lasts   time.Duration // of calls at random times
	// callers, each with one call after the other; 0: at random times
	Concurrency int
	Rate        float64 // calls a second
	// how the server turns an attempt away; nil: it does not
	Fails func(id uint64, attempt int, at time.Duration) error
	// of a server that serves attempts in the order in which they come; 0: all at once
	Workers  int
	Methods  int           // that calls go to in turn; 0 is 1
	Deadline time.Duration // of each call; 0: none
	Options  []hedge.Option
	Seed     uint64
	Every    func(s *hedge.Scheduler, at time.Duration) // once a second
}

// Call is one that has ended.
type Call struct {
	ID       uint64
	At       time.Duration // when it began
	Took     time.Duration
	Attempts int
	Err      error
}

// run is one simulation.
type run struct {
	Client
	t         testing.TB
	do        func(ctx context.Context, id uint64) error // makes one call
	scheduler *hedge.Scheduler
	began     time.Time
	queue     chan struct{} // has room for as many attempts as there are workers
	calls     Calls
}

// Run returns the calls in order of their ids, from 0, and the scheduler's rows at the end.
func (c Client) Run(t *testing.T) (calls Calls, rows []stats.Method) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := run{Client: c, t: t, scheduler: hedgetest.All(t, c.Options...), began: time.Now()}
		if r.do = r.hedged; c.Workers > 0 {
			r.queue = make(chan struct{}, c.Workers)
		}
		r.run()
		synctest.Wait()
		calls, rows = r.calls, r.scheduler.Methods()
	})
	return calls, rows
}

// Through makes the calls by a function, in virtual or real time, and returns them in order of
// their ids, from 0. Latency, Fails, Workers, Methods, Options and Every have no effect.
func (c Client) Through(t testing.TB, call func(ctx context.Context, id uint64) error) Calls {
	t.Helper()
	c.Every = nil
	r := run{Client: c, t: t, do: call, began: time.Now()}
	r.run()
	return r.calls
}

func (r *run) run() {
	if r.Concurrency > 0 {
		r.oneAfterTheOther()
	} else {
		r.atTheRate()
	}
}

func (r *run) oneAfterTheOther() {
	r.calls = make(Calls, r.Calls)
	var group sync.WaitGroup
	var next atomic.Uint64
	for range r.Concurrency {
		group.Go(func() {
			for id := next.Add(1) - 1; id < uint64(r.Calls); id = next.Add(1) - 1 {
				r.call(id)
			}
		})
	}
	group.Wait()
}

func (r *run) atTheRate() {
	random := rand.New(rand.NewPCG(r.Seed, 77))
	var starts []time.Duration
	for at := time.Duration(0); r.Calls == 0 || len(starts) < r.Calls; {
		at += time.Duration(random.ExpFloat64() / r.Rate * float64(time.Second))
		if r.Calls == 0 && at >= r.Lasts {
			break
		}
		starts = append(starts, at)
	}
	r.calls = make(Calls, len(starts))
	var group sync.WaitGroup
	second := time.Duration(0)
	for id, at := range starts {
		if wait := at - time.Since(r.began); wait > 0 {
			<-time.After(wait)
		}
		group.Go(func() { r.call(uint64(id)) })
		if r.Every != nil && at >= second {
			second += time.Second
			r.Every(r.scheduler, at)
		}
	}
	group.Wait()
}

// call makes one call. In real time it may begin late, and is measured from then: no call waits
// for another.
func (r *run) call(id uint64) {
	c := &r.calls[id]
	c.ID, c.At = id, time.Since(r.began)
	ctx := r.t.Context()
	if r.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Deadline)
		defer cancel()
	}
	c.Err = r.do(ctx, id)
	c.Took = time.Since(r.began) - c.At
}

// hedged makes a call by [hedge.Do].
func (r *run) hedged(ctx context.Context, id uint64) error {
	var mu sync.Mutex
	method := Method
	if r.Methods > 1 {
		method += strconv.Itoa(int(id) % r.Methods)
	}
	_, err := hedge.Do(ctx, r.scheduler, Target, method, func(ctx context.Context) (int, error) {
		mu.Lock()
		r.calls[id].Attempts++
		mu.Unlock()
		return r.attempt(ctx, id)
	})
	if err != nil && r.Fails == nil && r.Deadline == 0 {
		r.t.Error(err)
	}
	return err
}

func (r *run) attempt(ctx context.Context, id uint64) (int, error) {
	n, at := AttemptOf(ctx), time.Since(r.began)
	if r.Fails != nil {
		if err := r.Fails(id, n, at); err != nil {
			return 0, err
		}
	}
	d := r.Latency(id, n, at)
	if r.queue != nil {
		select {
		case r.queue <- struct{}{}:
		case <-ctx.Done(): // it leaves the queue
			return 0, ctx.Err()
		}
		time.AfterFunc(d, func() { <-r.queue }) // but not the worker
	}
	return hedgetest.Taking(d)(ctx)
}

// AttemptOf is the number of the attempt that has the context, 0 for the primary.
func AttemptOf(ctx context.Context) int {
	md, _ := metadata.FromOutgoingContext(ctx)
	values := md.Get("grpc-previous-rpc-attempts")
	if len(values) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(values[len(values)-1])
	return n
}

// Drawing draws each attempt's latency from a distribution. The draw depends only on the seed, the
// call and the attempt.
func Drawing(distribution testserver.Distribution, seed uint64) Latency {
	return func(id uint64, attempt int, _ time.Duration) time.Duration {
		return distribution.Draw(Generator(seed, id, attempt))
	}
}

// Generator draws for one attempt of a call, or with a negative number for what all of them have in
// common.
func Generator(seed, id uint64, attempt int) *rand.Rand {
	r := rand.New(rand.NewPCG(seed*0x9e3779b97f4a7c15^id, uint64(attempt)*0xbf58476d1ce4e5b9+seed))
	for range 3 {
		r.Uint64() // neighbouring states begin alike
	}
	return r
}

// Calls are calls in the order in which they began.
type Calls []Call

// Between returns the calls that began from one time on and before another.
func (c Calls) Between(from, to time.Duration) Calls {
	at := func(c Call, d time.Duration) int { return int(c.At - d) }
	first, _ := slices.BinarySearchFunc(c, from, at)
	last, _ := slices.BinarySearchFunc(c, to, at)
	return c[first:last]
}

// Tail returns the quantile q of the calls' latencies.
func (c Calls) Tail(q float64) time.Duration {
	took := make([]time.Duration, len(c))
	for i := range c {
		took[i] = c[i].Took
	}
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}

// Hedges is how many attempts there were beyond the first of each call.
func (c Calls) Hedges() (n int) {
	for i := range c {
		n += c[i].Attempts - 1
	}
	return n
}

// Load is the extra attempts a call.
func (c Calls) Load() float64 { return float64(c.Hedges()) / float64(len(c)) }

// Mean returns the mean latency of the calls.
func (c Calls) Mean() time.Duration {
	sum := 0.0
	for i := range c {
		sum += float64(c[i].Took)
	}
	return time.Duration(sum / float64(len(c)))
}

// Failed is the share of calls that failed, in percent.
func (c Calls) Failed() float64 {
	n := 0
	for i := range c {
		if c[i].Err != nil {
			n++
		}
	}
	return 100 * float64(n) / float64(len(c))
}

// Quota is a server's rate limit: a bucket from which each attempt takes a token. An attempt that
// finds none fails.
type Quota struct {
	Rate  func(at time.Duration) float64 // tokens a second
	Burst float64

	mu     sync.Mutex
	tokens float64
	last   time.Duration
}

// NewQuota returns a full bucket, of a server that says RESOURCE_EXHAUSTED when it is empty.
func NewQuota(rate, burst float64) *Quota {
	return &Quota{Rate: func(time.Duration) float64 { return rate }, Burst: burst, tokens: burst}
}

// Take is for [Client].Fails.
func (q *Quota) Take(_ uint64, _ int, at time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tokens = min(q.tokens+q.Rate(at)*(at-q.last).Seconds(), q.Burst)
	q.last = at
	if q.tokens < 1 {
		return status.Error(codes.ResourceExhausted, "the quota is used up")
	}
	q.tokens--
	return nil
}
