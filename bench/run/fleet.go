package run

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/bench/workload"
)

// connectFleet connects all clients of a fleet. The first client gets the given dial options.
func (a *arm) connectFleet(ctx context.Context, t *target, dial []grpc.DialOption) error {
	for i := range a.Workload.Fleet.Clients {
		if i > 0 {
			var err error
			if dial, _, err = a.policy.Dial(a.Options); err != nil {
				return err
			}
		}
		c, err := Connect(ctx, t.cluster, append(slices.Clip(dial), small,
			grpc.WithDefaultServiceConfig(inTurn), grpc.WithChainUnaryInterceptor(keepDeadline)))
		if err != nil {
			return err
		}
		joined := &client{TestServiceClient: c}
		joined.turn.Store(uint32(7 * i)) // so that they do not all begin with the same server
		t.clients = append(t.clients, joined)
	}
	time.Sleep(time.Second) // all connections are ready by then
	return nil
}

// small lets each of thousands of connections take little memory.
var small = grpc.WithReadBufferSize(1 << 10)

// inFleet returns the context of a call: it has the fleet's deadline and the turn of its client.
func (c *client) inFleet(ctx context.Context, f *workload.Fleet) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithValue(ctx, turnKey{}, &c.turn), f.Deadline)
}

// keepDeadline keeps the deadline of a call from its server, which sees a reset when it passes, and
// has hedges notice a little later than primaries that they are over. When a deadline passes, the
// client, the server and each attempt would end the call at the same instant of virtual time, and
// which of them comes first would be left to chance.
func keepDeadline(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if md, _ := metadata.FromOutgoingContext(ctx); len(md.Get("grpc-previous-rpc-attempts")) == 0 {
		return invoker(untold{ctx}, method, req, reply, cc, opts...)
	}
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(noticed, cancel) })()
	return invoker(later, method, req, reply, cc, opts...)
}

// noticed is how much later hedges notice.
const noticed = 10 * time.Microsecond

// untold is a context that hides its deadline.
type untold struct{ context.Context }

func (untold) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// missedDeadline reports whether a call failed because its deadline passed; a peer returns the
// context's error as it is.
func missedDeadline(err error) bool {
	return status.Code(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)
}

// watchBusy notes how long the servers have been busy at the end of each step. The function that it
// returns waits for the end of the last one.
func (a *arm) watchBusy() (end func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, end := range a.Workload.Fleet.Times(a.Calls) {
			time.Sleep(time.Until(a.started().Add(end)))
			a.busy = append(a.busy, a.targets[0].cluster.Busy())
		}
	})
	return wg.Wait
}

// overspent returns by how many hedges the budget of any client was exceeded.
func (a *arm) overspent(t *target) float64 {
	began, hedges := make([][]time.Duration, len(t.clients)), make([][]time.Duration, len(t.clients))
	of := func(n int) int {
		if a.callers == nil {
			return 0
		}
		return a.callers[n]
	}
	for n, at := range a.began {
		began[of(n)] = append(began[of(n)], at)
	}
	for _, h := range t.hedges {
		i := of(min(int(h.id)-1, len(a.began)-1)) // where a request is several calls, there is one client
		hedges[i] = append(hedges[i], h.at)
	}
	worst := 0.0
	for i, c := range t.clients {
		slices.Sort(hedges[i])
		worst = max(worst, overspent(began[i], hedges[i], a.policy.Budget, c.won.Load()))
	}
	return worst
}

// Step is what happened in one step of a fleet's load.
type Step struct {
	workload.Step
	Sorted []time.Duration // latencies of the calls that began in it
	Failed int             // calls of these that missed their deadline
	Hedges int             // that reached a server in it
	Busy   float64         // share of the time of all workers
}

// ExtraLoad is the hedges of the step as a share of its calls.
func (s Step) ExtraLoad() float64 { return float64(s.Hedges) / float64(max(len(s.Sorted), 1)) }

// Steps returns the run of a fleet step by step.
func (r *Result) Steps(w workload.Workload) []Step {
	var steps []Step
	from, busy := time.Duration(0), time.Duration(0)
	for i, end := range w.Fleet.Times(len(r.Latencies)) {
		s := Step{Step: w.Fleet.Steps[i], Sorted: r.Of(w.Parts[i])}
		for n := range r.Late {
			if r.Late[n] && w.Parts[i].Has(n, len(r.Late)) {
				s.Failed++
			}
		}
		for _, at := range r.hedges {
			if at >= from && at < end {
				s.Hedges++
			}
		}
		workers := time.Duration(w.Servers() * w.Workers)
		s.Busy = float64(r.busy[i]-busy) / float64(workers*(end-from))
		steps = append(steps, s)
		from, busy = end, r.busy[i]
	}
	return steps
}

// wellFor is the number of consecutive seconds at the level before the overload after which a fleet
// counts as recovered.
const wellFor = 3

// WellAgain returns how many seconds after a time of the run the p99 of each second is at most a
// bar again, for some seconds in a row; it is false if that does not happen in the run.
func (r *Result) WellAgain(after, bar time.Duration) (int, bool) {
	first := int((after + time.Second - 1) / time.Second)
	course := r.Seconds()
	for i := first; i+wellFor <= len(course); i++ {
		if !slices.ContainsFunc(course[i:i+wellFor], func(s Second) bool { return s.P99 > bar }) {
			return i - first, true
		}
	}
	return 0, false
}
