package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// cost measures what calls cost that need no hedge: the throughput of a client that calls a server which
// answers at once.
type cost struct {
	concurrency []int
	duration    time.Duration
	slice       time.Duration
	seed        int
}

// contestant is a policy with options, under a label.
type contestant struct {
	label, policy string
	options       []hedge.Option
}

// contestants are the policies that are compared with plain gRPC, which comes first. It also comes second, as
// its own opponent, which shows how far two equals can seem apart on this machine. Between the two of this library lies
// what hedges cost that were sent because the machine itself made calls slow.
var contestants = []contestant{
	{label: "plain gRPC", policy: none},
	{label: "plain gRPC again", policy: none},
	{label: "context and timer", policy: contextAndTimer},
	{label: "hedge, never due", policy: adaptive, options: []hedge.Option{hedge.WithMinDelay(time.Minute)}},
	{label: "hedge, nothing configured", policy: adaptive},
	{label: "failsafe-go", policy: failsafeCost},
}

func (c *cost) run(ctx context.Context, w, log io.Writer) error {
	rounds := c.rounds()
	fmt.Fprintf(w, "Calls to a server on loopback that answers at once; %d rounds at each concurrency, in which each\n"+
		"contestant calls for %v, in random order. Ratios are to plain gRPC in the same round. GOMAXPROCS is %d.\n\n",
		rounds, c.slice, runtime.GOMAXPROCS(0))

	table := newTable(w, 2, "concurrency", "client", "calls/s", "µs a call", "ratio", "95% of it", "quartiles", "hedges/100 calls", "wrong")
	p := startProgress(log, "cost", int64(len(c.concurrency)*rounds))
	defer p.end()
	for i, concurrency := range c.concurrency {
		scores, err := c.measure(ctx, concurrency, rounds, p)
		if err != nil {
			return err
		}
		if i > 0 {
			table.AppendSeparator()
		}
		for _, s := range scores {
			table.AppendRow(row(s.cells(concurrency)...))
		}
	}
	p.end()
	table.Render()
	fmt.Fprintf(w, "\nThe ratio is the median of the rounds; with 95%% probability the true one lies within the bounds beside it.\n"+
		"Wrong are replies of the peer that are not what was asked for, and calls of its that failed; of any other they would end the run.\n"+
		"Half of all rounds lie between the quartiles. To meet: a ratio of at least 0.97 at concurrency 1 and 16.\n")
	return nil
}

// rounds is how many rounds fit into the time at each concurrency: an odd number, so that one of them is the
// median.
func (c *cost) rounds() int {
	round := c.slice * time.Duration(len(contestants)*len(c.concurrency))
	return int(max(c.duration/round, 3)-1) | 1
}

// score is the throughput of one contestant.
type score struct {
	label  string
	rates  []float64 // calls a second in each round
	ratios []float64 // to the first contestant's in the same round; nil for itself
	calls  int64
	wrong  int64 // replies of a peer that were not what was asked for, and calls of its that failed
	stats  hedge.Stats
}

// measure runs all rounds at one concurrency.
func (c *cost) measure(ctx context.Context, concurrency, rounds int, p *progress) ([]score, error) {
	cluster, err := testserver.Start(testserver.Config{CountsOnly: true})
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	scores := make([]score, len(contestants))
	clients := make([]testpb.TestServiceClient, len(contestants))
	schedulers := make([]*hedge.Scheduler, len(contestants))
	for i, contestant := range contestants {
		scores[i].label = contestant.label
		dial, scheduler, err := policyNamed(contestant.policy).dial(contestant.options)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", contestant.label, err)
		}
		schedulers[i] = scheduler
		if clients[i], err = connect(ctx, cluster, dial); err != nil {
			return nil, fmt.Errorf("%s: %w", contestant.label, err)
		}
		// Once unmeasured, so that no contestant's connection and memory are colder than another's.
		if _, err := callFor(ctx, clients[i], concurrency, c.slice, isPeer(contestant)); err != nil {
			return nil, fmt.Errorf("%s: %w", contestant.label, err)
		}
	}
	for _, order := range shuffled(len(contestants), rounds, uint64(c.seed)) {
		for _, i := range order {
			made, err := callFor(ctx, clients[i], concurrency, c.slice, isPeer(contestants[i]))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", scores[i].label, err)
			}
			scores[i].calls += made.calls
			scores[i].wrong += made.wrong
			scores[i].rates = append(scores[i].rates, float64(made.calls)/made.took.Seconds())
		}
		p.add(1)
	}
	for i := range scores {
		scores[i].stats = schedulers[i].Stats()
		for round, rate := range scores[i].rates {
			if i > 0 {
				scores[i].ratios = append(scores[i].ratios, rate/scores[0].rates[round])
			}
		}
	}
	return scores, nil
}

func isPeer(c contestant) bool { return policyNamed(c.policy).peer }

// made is calls that were made: how many, in what time, and how many of them came to the wrong end.
type made struct {
	calls, wrong int64
	took         time.Duration
}

// callFor makes calls for a while, so many at a time. One that fails, or whose reply is not what was asked for, is an error
// unless it is a peer's: such ones are counted.
func callFor(ctx context.Context, client testpb.TestServiceClient, concurrency int, d time.Duration, peer bool) (made, error) {
	var calls, wrong, id atomic.Int64
	var over atomic.Bool
	var firstErr atomic.Pointer[error]
	time.AfterFunc(d, func() { over.Store(true) })
	start := time.Now()
	var wg sync.WaitGroup
	for range concurrency {
		wg.Go(func() {
			n := int64(0)
			defer func() { calls.Add(n) }()
			for !over.Load() {
				req := &testpb.Request{Id: uint64(id.Add(1))}
				reply, err := client.Unary(ctx, req)
				if err == nil {
					err = testserver.Check(req, 0, reply)
				}
				switch {
				case err == nil:
				case peer:
					wrong.Add(1)
				default:
					firstErr.CompareAndSwap(nil, &err)
					return
				}
				n++
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if err := firstErr.Load(); err != nil {
		return made{}, *err
	}
	return made{calls.Load(), wrong.Load(), took}, nil
}

func (s score) cells(concurrency int) []string {
	rate := quantile(slices.Sorted(slices.Values(s.rates)), 0.5)
	cells := []string{strconv.Itoa(concurrency), s.label, count(int64(rate)), fmt.Sprintf("%.1f", 1e6/rate)}
	if s.ratios == nil {
		return cells
	}
	ratios := slices.Sorted(slices.Values(s.ratios))
	low, high := medianBounds(ratios)
	cells = append(cells, ratio(quantile(ratios, 0.5)), ratio(low)+"–"+ratio(high),
		ratio(quantile(ratios, 0.25))+"–"+ratio(quantile(ratios, 0.75)))
	hedges := ""
	if s.stats.Calls > 0 {
		hedges = fmt.Sprintf("%.2f", 100*s.stats.HedgeRate())
	}
	return append(cells, hedges, count(s.wrong))
}
