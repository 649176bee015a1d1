package cost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/policy"
	"github.com/grpchedge/hedge/bench/progress"
	"github.com/grpchedge/hedge/bench/run"
	"github.com/grpchedge/hedge/bench/table"
	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// Count compares contestants by the instructions of a client process per call. Valgrind counts
// them, so that the result does not depend on what else the machine does.
type Count struct {
	Server, Client []string // the commands that run Serve and a [Counted]
	Kinds          []string // of KindNames but http; nil means all
	Concurrency    []int
	Calls          int
}

// counted are the labels of the contestants of a count. Valgrind makes calls slow, so the timers of
// the floor that costs are compared to would fire.
var counted = []string{plainLabel, trueFloorLabel, neverDue, hedgeLabel}

const (
	plainLabel     = "plain gRPC"
	trueFloorLabel = "the true floor"
	neverDue       = "hedge, never due"
	hedgeLabel     = "hedge"
)

// countWarmup is how many calls a client makes that are not counted. All schedulers have learned by
// then.
const countWarmup = 500

// Run writes the table to w and its progress to log.
func (c *Count) Run(ctx context.Context, w, log io.Writer) error {
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		fmt.Fprintln(w, "Valgrind is not installed, so no instructions are counted.")
		return nil
	}
	to, stop, err := startServer(ctx, c.Server)
	if err != nil {
		return err
	}
	defer stop()
	kinds := slices.DeleteFunc(slices.Clone(KindNames), func(name string) bool {
		return name == "http" || c.Kinds != nil && !slices.Contains(c.Kinds, name)
	})
	t := table.New(w, 3, "calls", "at a time", "client", "instructions", "of plain", "hedges/100 calls")
	p := progress.Start(log, "count", int64(len(kinds)*len(c.Concurrency)*len(counted)))
	defer p.End()
	for _, kind := range kinds {
		for _, concurrency := range c.Concurrency {
			plain := 0.0
			for _, label := range counted {
				each, hedges, err := c.perCall(ctx, valgrind, Counted{Target: to.grpc, Kind: kind, Concurrency: concurrency,
					Label: label})
				if err != nil {
					return fmt.Errorf("%s calls, %d at a time, %s: %w", kind, concurrency, label, err)
				}
				if plain == 0 {
					plain = each
				}
				t.AppendRow(table.Row(kind, strconv.Itoa(concurrency), label, figure.Count(int64(each)),
					figure.Ratio(each/plain), hedges))
				p.Add(1)
			}
			t.AppendSeparator()
		}
	}
	p.End()
	t.Render()
	fmt.Fprint(w, aboutCount)
	return nil
}

const aboutCount = `
Instructions of the client's process per call, counted by Valgrind, with GOMAXPROCS=1: garbage
collection and goroutine scheduling included, the kernel and the server left out. The true floor is a
context that can be canceled, a timer, the latency recorded and, for a stream, the request kept
encoded in pooled memory. Only "hedge" may send hedges: it learns its delay.
`

// perCall returns the instructions of a call: the difference of two clients, so that the start of a
// process and the warm-up are left out.
func (c *Count) perCall(ctx context.Context, valgrind string, client Counted) (each float64, hedges string, err error) {
	var totals [2]float64
	for i, calls := range []int{0, c.Calls} {
		client.Calls = calls
		args := append([]string{"--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"},
			append(slices.Clone(c.Client), client.args()...)...)
		cmd := exec.CommandContext(ctx, valgrind, args...)
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		output, err := cmd.Output()
		refs := instructions.FindStringSubmatch(stderr.String())
		if err != nil || refs == nil {
			return 0, "", fmt.Errorf("no count: %w\n%s", errors.Join(err, ctx.Err()), stderr.String())
		}
		totals[i], _ = strconv.ParseFloat(strings.ReplaceAll(refs[1], ",", ""), 64)
		hedges = strings.TrimSpace(string(output))
	}
	return (totals[1] - totals[0]) / float64(c.Calls), hedges, nil
}

// instructions matches the total of Cachegrind.
var instructions = regexp.MustCompile(`I\s+refs:\s+([\d,]+)`)

// Counted is a client that is counted.
type Counted struct {
	Target, Kind, Label string
	Concurrency, Calls  int
}

func (c *Counted) args() []string {
	return []string{"-to", c.Target, "-kind", c.Kind, "-client", c.Label, "-concurrency", strconv.Itoa(c.Concurrency),
		"-calls", strconv.Itoa(c.Calls)}
}

// Run warms up, makes the calls, and writes the number of hedges per 100 calls.
func (c *Counted) Run(ctx context.Context, w io.Writer) error {
	i := slices.IndexFunc(contestants, func(o contestant) bool { return o.label == c.Label })
	k := slices.IndexFunc(kinds, func(k kind) bool { return k.name == c.Kind })
	if i < 0 || k < 0 {
		return fmt.Errorf("no client %q of %q calls", c.Label, c.Kind)
	}
	dial, s, err := policy.Named(contestants[i].policy).Dial(contestants[i].options)
	if err != nil {
		return err
	}
	conn, err := run.ConnectTo(ctx, c.Target, dial)
	if err != nil {
		return err
	}
	defer conn.Close()
	calls := caller{client: testpb.NewTestServiceClient(conn), kind: kinds[k], concurrency: c.Concurrency}
	if err := calls.makes(ctx, countWarmup); err != nil {
		return err
	}
	before := s.Stats()
	err = calls.makes(ctx, c.Calls)
	fmt.Fprintln(w, perHundred(s, before.Hedges, before.Calls))
	return err
}

func perHundred(s *hedge.Scheduler, hedges, calls int64) string {
	if s == nil {
		return "none"
	}
	after := s.Stats()
	after.Hedges, after.Calls = after.Hedges-hedges, after.Calls-calls
	return fmt.Sprintf("%.2f", 100*after.HedgeRate())
}

// makes makes a number of calls.
func (c caller) makes(ctx context.Context, calls int) error {
	var id atomic.Int64
	errs := make([]error, c.concurrency)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for n := id.Add(1); n <= int64(calls) && errs[i] == nil; n = id.Add(1) {
				req := &testpb.Request{Id: uint64(n)}
				reply, err := c.kind.call(ctx, c.client, req)
				if err == nil {
					err = testserver.Check(req, 0, reply)
				}
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
