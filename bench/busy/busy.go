// Package busy measures hedging where processors are short: at the servers, and at the client.
// Servers and the busy client are processes of their own with GOMAXPROCS=1.
package busy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/table"
	"github.com/grpchedge/hedge/interceptor"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// Busy is one measurement. Arms take turns, and each turn begins when all calls before have ended.
// In a round of turns all arms make the same calls at the same times. The figures are medians over
// turns.
//
// Note: the runtime's processors (GOMAXPROCS) are busy, not the machine's: see hold. The machine
// should be idle: under other load two plain arms differ by up to four times. If "plain again"
// differs much from "plain", the other rows are meaningless too.
type Busy struct {
	Self     string        // the program, which starts itself as servers and as the busy client
	Servers  int           // processes
	Handler  time.Duration // the mean time for which a handler keeps its processor
	Own      time.Duration // the mean time for which a busy client keeps its processor after each call
	Loads    []int         // in percent of the measured capacity
	Duration time.Duration // of each load
	Slice    time.Duration // of one turn, after a fifth of it that is not measured
	Budget   float64       // in percent
	Seed     int
}

func (b *Busy) warmup() time.Duration { return b.Slice / 5 }

// Run measures busy servers, and then a busy client of idle servers.
func (b *Busy) Run(ctx context.Context, w, log io.Writer) error {
	addresses, stop, err := b.start(ctx, b.Handler, false)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d servers with GOMAXPROCS=1; handlers keep the processor for %v, exponential.\n\n",
		b.Servers, b.Handler)
	err = b.measure(ctx, w, log, addresses, 0, []string{plain, again, hedged, shedding})
	stop()
	if err != nil {
		return err
	}
	addresses, stop, err = b.start(ctx, 2*time.Millisecond, true)
	if err != nil {
		return err
	}
	defer stop()
	client := b.child(ctx, "-client", strings.Join(addresses, ","), "-own", b.Own.String(), "-seed", fmt.Sprint(b.Seed),
		"-duration", b.Duration.String(), "-slice", b.Slice.String(), "-loads", strings.Trim(
			strings.ReplaceAll(fmt.Sprint(b.Loads), " ", ","), "[]"), "-budget", fmt.Sprint(b.Budget))
	client.Stdout, client.Stderr = w, log
	fmt.Fprintf(w, "\nA client with GOMAXPROCS=1 that keeps the processor for %v after each call, exponential, of "+
		"idle servers.\n\n", b.Own)
	return client.Run()
}

// RunClient measures this process as the busy client.
func (b *Busy) RunClient(ctx context.Context, w, log io.Writer, addresses []string) error {
	return b.measure(ctx, w, log, addresses, b.Own, []string{plain, again, hedged})
}

func (b *Busy) child(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.Self, append([]string{"busy"}, args...)...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	return cmd
}

// start starts the servers and returns their addresses.
func (b *Busy) start(ctx context.Context, mean time.Duration, sleeps bool) (addresses []string, stop func(),
	err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for range b.Servers {
		cmd := b.child(ctx, "-serve", "-handler", mean.String(), fmt.Sprintf("-sleep=%t", sleeps))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, stop, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, stop, err
		}
		if err := cmd.Start(); err != nil {
			return nil, stop, err
		}
		stops = append(stops, func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
		address, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			stop()
			return nil, nil, errors.New("a server process gave no address")
		}
		addresses = append(addresses, strings.TrimSpace(address))
	}
	return addresses, stop, nil
}

// The arms.
const (
	plain    = "plain"
	again    = "plain again" // what chance does to the figures
	hedged   = "hedged"
	shedding = "hedged, servers shed"
)

type arm struct {
	name      string
	client    testpb.TestServiceClient
	close     func() error
	scheduler *hedge.Scheduler // nil: plain
	before    stats.Counts

	turns  [][3]float64 // p50, p99 and mean of each turn, in ns
	calls  int
	mu     sync.Mutex
	took   []time.Duration // of this turn
	failed int
}

func (b *Busy) arm(name string, addresses []string) (*arm, error) {
	a := &arm{name: name}
	r := manual.NewBuilderWithScheme("bench")
	var state resolver.State
	for _, address := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	r.InitialState(state)
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(r),
		grpc.WithDefaultServiceConfig(balancer.ServiceConfig)}
	if name != plain && name != again {
		var err error
		if a.scheduler, err = hedge.New(hedge.WithAllMethods(), hedge.WithBudgetPercent(b.Budget)); err != nil {
			return nil, err
		}
		opts = interceptor.DialOptions(a.scheduler, opts...)
	}
	conn, err := grpc.NewClient("bench:///servers", opts...)
	if err != nil {
		return nil, err
	}
	a.client, a.close = testpb.NewTestServiceClient(conn), conn.Close
	return a, nil
}

func (a *arm) call(ctx context.Context, id uint64, counts bool) {
	if a.name != shedding {
		ctx = metadata.AppendToOutgoingContext(ctx, withoutShed, "1")
	}
	began := time.Now()
	reply, err := a.client.Unary(ctx, &testpb.Request{Id: id})
	took := time.Since(began)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil || reply.Id != id {
		a.failed++
	}
	if counts {
		a.took = append(a.took, took)
	}
}

// measure measures the capacity, and then each load under each arm, and prints a table.
func (b *Busy) measure(ctx context.Context, w, log io.Writer, addresses []string, own time.Duration,
	names []string) error {
	var arms []*arm
	for _, name := range names {
		a, err := b.arm(name, addresses)
		if err != nil {
			return err
		}
		defer a.close()
		arms = append(arms, a)
	}
	capacity := b.capacity(ctx, arms[0], own)
	fmt.Fprintf(w, "Measured capacity: %.0f calls a second.\n\n", capacity)
	t := table.New(w, 2, "load", "", "calls", "p50", "p99", "mean", "p50 by plain's", "p99 by plain's",
		"mean by plain's", "hedges", "won", "turned away", "client busy", "failed")
	random := rand.New(rand.NewPCG(uint64(b.Seed), 1))
	for _, load := range b.Loads {
		fmt.Fprintf(log, "load %d%%\n", load)
		for _, a := range arms {
			a.turns, a.calls, a.before = nil, 0, a.stats()
		}
		for until := time.Now().Add(b.Duration); time.Now().Before(until) && ctx.Err() == nil; {
			round := random.Uint64() // the arms have the same calls
			for _, n := range random.Perm(len(arms)) {
				b.turn(ctx, arms[n], capacity*float64(load)/100, own, round)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		base := arms[0].figures()
		for _, a := range arms {
			f, s := a.figures(), a.stats()
			by := func(i int) string { return figure.Ratio(f[i] / base[i]) }
			at := func(i int) string { return figure.Millis(time.Duration(f[i])) }
			share := func(n, before int64) string {
				return figure.Percent(float64(n-before) / float64(max(1, s.Calls-a.before.Calls)))
			}
			t.AppendRow(table.Row(fmt.Sprintf("%d%%", load), a.name, figure.Count(int64(a.calls)), at(0), at(1), at(2),
				by(0), by(1), by(2), share(s.Hedges, a.before.Hedges), share(s.HedgeWins,
					a.before.HedgeWins), share(s.TurnedAway, a.before.TurnedAway),
				share(s.ClientBusy, a.before.ClientBusy), fmt.Sprint(a.failed)))
		}
		t.AppendSeparator()
	}
	t.Render()
	for _, a := range arms {
		if a.failed > 0 {
			return fmt.Errorf("%s: %d calls failed", a.name, a.failed)
		}
	}
	return nil
}

func (a *arm) stats() stats.Counts {
	if a.scheduler == nil {
		return stats.Counts{}
	}
	return a.scheduler.Stats()
}

// endTurn adds the figures of the turn.
func (a *arm) endTurn() {
	if len(a.took) == 0 {
		return
	}
	slices.Sort(a.took)
	sum := time.Duration(0)
	for _, d := range a.took {
		sum += d
	}
	a.turns = append(a.turns, [3]float64{
		float64(figure.Quantile(a.took, .5)), float64(figure.Quantile(a.took, .99)), float64(sum) / float64(len(a.took)),
	})
	a.calls += len(a.took)
	a.took = nil
}

// figures returns the medians of p50, p99 and mean over all turns, so that a pause of the machine
// does not decide.
func (a *arm) figures() (f [3]float64) {
	for i := range f {
		var all []float64
		for _, turn := range a.turns {
			all = append(all, turn[i])
		}
		slices.Sort(all)
		if len(all) > 0 {
			f[i] = figure.Quantile(all, .5)
		}
	}
	return f
}

// capacity returns how many calls a second sixteen callers complete.
func (b *Busy) capacity(ctx context.Context, a *arm, own time.Duration) float64 {
	var calls atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	half := b.warmup() + b.Slice // without the first part, when connections are made
	for range 16 {
		all.Go(func() {
			for time.Since(began) < half+b.Slice*2 && ctx.Err() == nil {
				a.call(ctx, rand.Uint64(), false)
				hold(draw(own))
				if time.Since(began) > half {
					calls.Add(1)
				}
			}
		})
	}
	all.Wait()
	return float64(calls.Load()) / (time.Since(began) - half).Seconds()
}

// turn makes calls at the rate for one slice, and waits for them.
func (b *Busy) turn(ctx context.Context, a *arm, rate float64, own time.Duration, round uint64) {
	var all sync.WaitGroup
	random := rand.New(rand.NewPCG(round, 1))
	began := time.Now()
	for at := time.Duration(0); at < b.warmup()+b.Slice &&
		ctx.Err() == nil; at += time.Duration(random.ExpFloat64() / rate * float64(time.Second)) {
		time.Sleep(at - time.Since(began))
		id := random.Uint64()
		all.Go(func() {
			a.call(ctx, id, at >= b.warmup())
			hold(draw(own))
		})
	}
	all.Wait()
	a.endTurn()
}
