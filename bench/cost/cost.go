// Package cost measures the throughput of calls that need no hedge, as a share of plain gRPC's.
package cost

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
	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/progress"
	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/bench/table"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// Cost measures the overhead of calls that need no hedge: the throughput of a client whose server answers at once.
type Cost struct {
	Concurrency []int
	Duration    time.Duration
	Slice       time.Duration
	Seed        int
}

// contestant is a policy with options and a label.
type contestant struct {
	label, policy string
	options       []hedge.Option
}

// contestants are the policies that are compared with plain gRPC, which is first. Plain gRPC is also second: the ratio
// of the two shows how far equals can differ on this machine. The difference of the two entries of this library is the
// cost of hedges that are sent because the machine itself made calls slow.
var contestants = []contestant{
	{label: "plain gRPC", policy: policy.None},
	{label: "plain gRPC again", policy: policy.None},
	{label: "context and timer", policy: policy.ContextAndTimer},
	{label: "hedge, never due", policy: policy.Adaptive, options: []hedge.Option{hedge.WithMinDelay(time.Minute)}},
	{label: "hedge, nothing configured", policy: policy.Adaptive},
	{label: "failsafe-go", policy: policy.FailsafeCost},
}

func (c *Cost) Run(ctx context.Context, w, log io.Writer) error {
	rounds := c.rounds()
	fmt.Fprintf(w, "Calls to a server on loopback that answers at once; %d rounds at each concurrency, in which each\n"+
		"contestant calls for %v, in random order. Ratios are to plain gRPC in the same round. GOMAXPROCS is %d.\n\n",
		rounds, c.Slice, runtime.GOMAXPROCS(0))

	t := table.New(w, 2, "concurrency", "client", "calls/s", "µs a call", "ratio", "95% of it", "quartiles", "hedges/100 calls", "wrong")
	p := progress.Start(log, "cost", int64(len(c.Concurrency)*rounds))
	defer p.End()
	for i, concurrency := range c.Concurrency {
		scores, err := c.measure(ctx, concurrency, rounds, p)
		if err != nil {
			return err
		}
		if i > 0 {
			t.AppendSeparator()
		}
		for _, s := range scores {
			t.AppendRow(table.Row(s.cells(concurrency)...))
		}
	}
	p.End()
	t.Render()
	fmt.Fprintf(w, "\nThe ratio is the median of the rounds; with 95%% probability the true one lies within the bounds beside it.\n"+
		"Wrong are replies of the peer that are not what was asked for, and calls of its that failed; of any other they would end the run.\n"+
		"Half of all rounds lie between the quartiles. To meet: a ratio of at least 0.97 at concurrency 1 and 16.\n")
	return nil
}

// rounds is how many rounds fit into the time at each concurrency: an odd number, so that the median is one of them.
func (c *Cost) rounds() int {
	round := c.Slice * time.Duration(len(contestants)*len(c.Concurrency))
	return int(max(c.Duration/round, 3)-1) | 1
}

// score is the throughput of one contestant.
type score struct {
	label  string
	rates  []float64 // calls a second in each round
	ratios []float64 // to the first contestant's in the same round; nil for itself
	calls  int64
	wrong  int64 // replies of a peer that were not what was asked for, and calls of its that failed
	stats  stats.Counts
}

// measure runs all rounds at one concurrency.
func (c *Cost) measure(ctx context.Context, concurrency, rounds int, p *progress.Progress) ([]score, error) {
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
		dial, scheduler, err := policy.Named(contestant.policy).Dial(contestant.options)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", contestant.label, err)
		}
		schedulers[i] = scheduler
		if clients[i], err = run.Connect(ctx, cluster, dial); err != nil {
			return nil, fmt.Errorf("%s: %w", contestant.label, err)
		}
		// One slice is not measured, so that all contestants start with warm connections and memory.
		if _, err := callFor(ctx, clients[i], concurrency, c.Slice, isPeer(contestant)); err != nil {
			return nil, fmt.Errorf("%s: %w", contestant.label, err)
		}
	}
	for _, order := range shuffled(len(contestants), rounds, uint64(c.Seed)) {
		for _, i := range order {
			made, err := callFor(ctx, clients[i], concurrency, c.Slice, isPeer(contestants[i]))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", scores[i].label, err)
			}
			scores[i].calls += made.calls
			scores[i].wrong += made.wrong
			scores[i].rates = append(scores[i].rates, float64(made.calls)/made.took.Seconds())
		}
		p.Add(1)
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

func isPeer(c contestant) bool { return policy.Named(c.policy).Peer }

// made is calls that were made, those of them that failed or had a wrong reply, and the time that all took.
type made struct {
	calls, wrong int64
	took         time.Duration
}

// callFor makes calls for the given time, as many at once as concurrency says. A failed call or a wrong reply is an
// error, but those of a peer are only counted.
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
	rate := figure.Quantile(slices.Sorted(slices.Values(s.rates)), 0.5)
	cells := []string{strconv.Itoa(concurrency), s.label, figure.Count(int64(rate)), fmt.Sprintf("%.1f", 1e6/rate)}
	if s.ratios == nil {
		return cells
	}
	ratios := slices.Sorted(slices.Values(s.ratios))
	low, high := figure.MedianBounds(ratios)
	cells = append(cells, figure.Ratio(figure.Quantile(ratios, 0.5)), figure.Ratio(low)+"–"+figure.Ratio(high),
		figure.Ratio(figure.Quantile(ratios, 0.25))+"–"+figure.Ratio(figure.Quantile(ratios, 0.75)))
	hedges := ""
	if s.stats.Calls > 0 {
		hedges = fmt.Sprintf("%.2f", 100*s.stats.HedgeRate())
	}
	return append(cells, hedges, figure.Count(s.wrong))
}
