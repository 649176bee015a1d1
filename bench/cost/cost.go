// Package cost measures the client's processor time for a call or an HTTP request that needs no
// hedge, as a ratio to a plain one.
package cost

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/progress"
	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/bench/table"
	testpb "github.com/grpchedge/hedge/proto"
)

// Cost compares contestants that take turns of one slice each, against a server in a process of its
// own that answers at once. A ratio compares two slices of the same round.
type Cost struct {
	Server      []string // the command that runs Serve
	Kinds       []string // of KindNames; nil means all
	Concurrency []int
	Warmup      time.Duration // for which each scheduler serves calls before it is measured, as it has to learn
	Duration    time.Duration // of the whole run without that
	Slice       time.Duration
	Seed        int
	All         bool   // also the contestants that are extra
	Profile     string // the path of a profile of the processor time; "" for none
}

// contestant is a policy with options and a label.
type contestant struct {
	label, policy string
	options       []hedge.Option
	extra         bool
	unaryOnly     bool
	http          bool // also in the table for HTTP requests
}

// contestants begin with the plain client, to which all others are compared. It is also second: its
// ratio shows how far equals differ on this machine. For HTTP requests it is plain HTTP.
var contestants = []contestant{
	{label: plainLabel, policy: policy.None, http: true},
	{label: "plain gRPC again", policy: policy.None, http: true},
	{label: "the floor", policy: policy.Floor},
	{label: trueFloorLabel, policy: policy.TrueFloor, extra: true},
	{label: hedgeLabel, policy: policy.Adaptive, http: true},
	{label: neverDue, policy: policy.Adaptive,
		options: []hedge.Option{hedge.WithMinDelay(time.Minute)}, extra: true},
	{label: "hedge, dry run", policy: policy.Adaptive, options: []hedge.Option{hedge.WithDryRun(true)}, extra: true},
	{label: "hedge, each call", policy: policy.Adaptive,
		options: []hedge.Option{hedge.WithTrigger(hedge.Fixed(time.Microsecond)),
			hedge.WithMaxHedges(1), hedge.WithBudgetPercent(100)}, extra: true},
	{label: "failsafe-go", policy: policy.FailsafeCost, extra: true, unaryOnly: true},
}

// cell is one part of the table: calls of one kind at one concurrency.
type cell struct {
	kind        kind
	concurrency int
	contestants []contestant
}

func (c *Cost) cells() []cell {
	var cells []cell
	for _, k := range kinds {
		if c.Kinds != nil && !slices.Contains(c.Kinds, k.name) {
			continue
		}
		in := slices.DeleteFunc(slices.Clone(contestants), func(o contestant) bool {
			return o.extra && !c.All || o.unaryOnly && k.name != "unary" || k.name == "http" && !o.http
		})
		if k.name == "http" {
			for i := range in {
				in[i].label = strings.Replace(in[i].label, "gRPC", "HTTP", 1)
			}
		}
		for _, n := range c.Concurrency {
			cells = append(cells, cell{k, n, in})
		}
	}
	return cells
}

// Run writes the table to w and its progress to log.
func (c *Cost) Run(ctx context.Context, w, log io.Writer) error {
	to, stop, err := startServer(ctx, c.Server)
	if err != nil {
		return err
	}
	defer stop()
	endProfile, err := profile(c.Profile)
	if err != nil {
		return err
	}
	defer endProfile()
	cells := c.cells()
	rounds := c.rounds(cells)
	fmt.Fprintf(w, "Calls to a server process on loopback that answers at once; %d rounds of each kind at each "+
		"concurrency. In a\n"+
		"round each contestant calls for %v, in random order. GOMAXPROCS is %d.\n\n", rounds, c.Slice, runtime.GOMAXPROCS(0))

	t := table.New(w, 3, "calls", "at a time", "client", "µs of processor", "of plain", "95% of it",
		"calls/s of plain", "hedges/100 calls", "wrong")
	p := progress.Start(log, "cost", int64(len(cells)*rounds))
	defer p.End()
	for i, cell := range cells {
		scores, err := c.measure(ctx, to, cell, rounds, p)
		if err != nil {
			return fmt.Errorf("%s calls, %d at a time: %w", cell.kind.name, cell.concurrency, err)
		}
		if i > 0 {
			t.AppendSeparator()
		}
		for j := range scores {
			t.AppendRow(table.Row(append([]string{cell.kind.name, strconv.Itoa(cell.concurrency)},
				scores[j].texts(&scores[0])...)...))
		}
	}
	p.End()
	t.Render()
	fmt.Fprint(w, about)
	return nil
}

const about = `
µs of processor is what a call took of the client's process. Ratios are to plain gRPC, or plain
HTTP, in the same round, the median of the rounds; with 95% probability the true one lies within the
bounds beside it. The floor is an interceptor with the least that any hedging needs: a context that
can be cancelled, and a timer of 1 ms that is stopped with the call. This library has served calls
before, so that it knows when hedging gains nothing.
To meet: at most the floor + 0.05 for unary calls, + 0.10 for streams.
`

// rounds is how many rounds fit into the duration: an odd number, so that the median is one of
// them.
func (c *Cost) rounds(cells []cell) int {
	var round time.Duration // of all cells
	for _, cell := range cells {
		round += c.Slice * time.Duration(len(cell.contestants))
	}
	return int(max(c.Duration/round, 3)-1) | 1
}

// score is the measurement of one contestant in one cell.
type score struct {
	label  string
	slices []slice
	hedges func() float64 // per 100 calls
}

// measure runs all rounds of one cell.
func (c *Cost) measure(ctx context.Context, to target, in cell, rounds int, p *progress.Progress) ([]score, error) {
	scores := make([]score, len(in.contestants))
	callers := make([]caller, len(in.contestants))
	defer func() {
		for _, caller := range callers {
			caller.close()
		}
	}()
	for i, o := range in.contestants {
		err := labelled(o.label, func() (err error) {
			callers[i], scores[i], err = o.connect(ctx, to, in, c)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.label, err)
		}
	}
	for _, order := range shuffled(len(scores), rounds, uint64(c.Seed)) {
		for _, i := range order {
			err := labelled(scores[i].label, func() error {
				s, err := callers[i].run(ctx, c.Slice)
				scores[i].slices = append(scores[i].slices, s)
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", scores[i].label, err)
			}
		}
		p.Add(1)
	}
	return scores, nil
}

// connect returns the caller of a contestant, and its score. All start with warm connections and
// memory.
func (o contestant) connect(ctx context.Context, to target, in cell, c *Cost) (caller, score, error) {
	p := policy.Named(o.policy)
	calls, warm := caller{kind: in.kind, concurrency: in.concurrency, peer: p.Peer}, c.Slice
	var scheduler *hedge.Scheduler
	var err error
	if in.kind.name == "http" {
		base := &http.Transport{MaxIdleConnsPerHost: 1000}
		calls.end = base.CloseIdleConnections
		var rt http.RoundTripper = base
		if p.Transport != nil {
			rt, scheduler, err = p.Transport(o.options, base)
		}
		calls.client = run.NewHTTPClient(to.http, rt)
	} else {
		var dial []grpc.DialOption
		if dial, scheduler, err = p.Dial(o.options); err != nil {
			return caller{}, score{}, err
		}
		var conn *grpc.ClientConn
		if conn, err = run.ConnectTo(ctx, to.grpc, dial); err == nil {
			calls.end, calls.client = func() { _ = conn.Close() }, testpb.NewTestServiceClient(conn)
		}
	}
	if err != nil {
		return caller{}, score{}, err
	}
	if scheduler != nil {
		warm = max(warm, c.Warmup)
	}
	_, err = calls.run(ctx, warm)
	before := scheduler.Stats()
	hedges := func() float64 {
		s := scheduler.Stats()
		s.Hedges, s.Calls = s.Hedges-before.Hedges, s.Calls-before.Calls
		return 100 * s.HedgeRate()
	}
	return calls, score{label: o.label, hedges: hedges}, err
}

// texts returns the score's cells of the table.
func (s *score) texts(plain *score) []string {
	var wrong int64
	var busy, busyRatios, rateRatios []float64
	for i, own := range s.slices {
		wrong += own.wrong
		busy = append(busy, own.busyPerCall())
		busyRatios = append(busyRatios, own.busyPerCall()/plain.slices[i].busyPerCall())
		rateRatios = append(rateRatios, own.rate()/plain.slices[i].rate())
	}
	for _, values := range [][]float64{busy, busyRatios, rateRatios} {
		slices.Sort(values)
	}
	texts := []string{s.label, fmt.Sprintf("%.1f", 1e6*figure.Quantile(busy, 0.5))}
	if s == plain {
		return texts
	}
	low, high := figure.MedianBounds(busyRatios)
	return append(texts, figure.Ratio(figure.Quantile(busyRatios, 0.5)), figure.Ratio(low)+"–"+figure.Ratio(high),
		figure.Ratio(figure.Quantile(rateRatios, 0.5)), fmt.Sprintf("%.2f", s.hedges()), figure.Count(wrong))
}
