package acceptance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/shed"
)

// service is the mean time that a server of the queues takes for an attempt.
const service = 8 * ms

// queues are servers with one worker each, which take exponential times, and clients that offer
// them a load.
type queues struct {
	servers int
	load    float64 // of the servers' capacity
	clients int
	finish  bool // servers do queued work that was cancelled; they always finish begun work
	shed    bool
	budget  float64 // in percent; 0: plain
	slow    bool    // a third of the servers is half as fast in the second third of the time
	calls   int
	seed    uint64
}

func (q queues) String() string {
	s := fmt.Sprintf("%d servers, %.0f%%, %d clients, %s, budget %v", q.servers, 100*q.load, q.clients,
		map[bool]string{false: "skip", true: "finish"}[q.finish], q.budget)
	if q.slow {
		s += ", brown-out"
	}
	return s
}

// queueServer is one of the servers.
type queueServer struct {
	worker chan struct{}
	bound  *shed.Bound
}

// serve serves an attempt that takes d.
func (q queues) serve(ctx context.Context, s *queueServer, d time.Duration) error {
	if !q.finish {
		select {
		case s.worker <- struct{}{}:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
		time.AfterFunc(d, func() { <-s.worker })
		_, err := hedgetest.Taking(d)(ctx)
		return err
	}
	done := make(chan struct{})
	go func() {
		s.worker <- struct{}{}
		time.Sleep(d)
		<-s.worker
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// trailing is the server's side of an attempt, which keeps the trailer.
type trailing struct {
	grpc.ServerTransportStream
	trailer metadata.MD
}

func (t *trailing) SetTrailer(md metadata.MD) error {
	t.trailer = md
	return nil
}

// draw returns the server of an attempt, which no earlier attempt of the call has met, and what the
// attempt takes.
func (q queues) draw(id uint64, number int) (n int, d time.Duration) {
	met := make([]int, 0, number)
	for i := range number + 1 {
		r := simulation.Generator(q.seed, id, i)
		for n = r.IntN(q.servers); slices.Contains(met, n); n = r.IntN(q.servers) {
		}
		met, d = append(met, n), time.Duration(r.ExpFloat64()*float64(service))
	}
	return n, d
}

// run returns the calls in the order of their ids.
func (q queues) run(t *testing.T) (calls simulation.Calls) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		servers := make([]*queueServer, q.servers)
		rate := float64(q.servers) * q.load / service.Seconds()
		span := time.Duration(float64(q.calls) / rate * float64(time.Second))
		began := time.Now()
		for n := range servers {
			worker := make(chan struct{}, 1)
			bound, err := shed.New(shed.WithBusy(func() bool { return len(worker) > 0 }))
			if err != nil {
				t.Fatal(err)
			}
			servers[n] = &queueServer{worker, bound}
		}
		attempt := func(ctx context.Context, id uint64, number int) (metadata.MD, error) {
			if number >= q.servers {
				return metadata.Pairs("grpc-retry-pushback-ms", "0"), status.Error(codes.ResourceExhausted, "no other server")
			}
			n, d := q.draw(id, number)
			if at := time.Since(began); q.slow && n < q.servers/3 && at > span/3 && at < 2*span/3 {
				d *= 2
			}
			if !q.shed || number == 0 {
				return nil, q.serve(ctx, servers[n], d)
			}
			md, _ := metadata.FromOutgoingContext(ctx)
			st := &trailing{}
			_, err := servers[n].bound.Unary(
				grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(ctx, md), st), nil, nil,
				func(context.Context, any) (any, error) { return nil, q.serve(ctx, servers[n], d) })
			return st.trailer, err
		}
		invoker := func(ctx context.Context, _ string, req, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
			id, number := req.(*testpb.Request).Id, simulation.AttemptOf(ctx)
			if number > 0 {
				calls[id].Attempts++
			}
			trailer, err := attempt(ctx, id, number)
			for _, o := range opts {
				switch o := o.(type) {
				case grpc.TrailerCallOption:
					*o.TrailerAddr = trailer
				case grpc.OnFinishCallOption:
					o.OnFinish(err)
				}
			}
			return err
		}
		clients := make([]grpc.UnaryClientInterceptor, q.clients)
		for n := range clients {
			if clients[n] = interceptor.Unary(nil); q.budget > 0 {
				clients[n] = interceptor.Unary(hedgetest.All(t, hedge.WithBudgetPercent(q.budget)))
			}
		}
		calls = make(simulation.Calls, q.calls)
		random := rand.New(rand.NewPCG(q.seed, 43))
		var all sync.WaitGroup
		for id := range uint64(q.calls) {
			time.Sleep(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
			client := clients[random.IntN(q.clients)]
			all.Go(func() {
				c := &calls[id]
				c.ID, c.At, c.Attempts = id, time.Since(began), 1
				err := client(t.Context(), simulation.Method, &testpb.Request{Id: id}, &testpb.Reply{}, nil, invoker)
				if c.Took = time.Since(began) - c.At; err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		time.Sleep(time.Minute) // for work that goes on
	})
	return calls
}

// TestQueues_NoWorseThanPlain offers loads to servers with queues, and compares the latency
// with the same calls without hedging. Servers shed. Without shedding, the figures are only
// logged.
func TestQueues_NoWorseThanPlain(t *testing.T) {
	longtest.Simulation(t)
	for _, servers := range []int{3, 20} {
		for _, finish := range []bool{false, true} {
			for _, clients := range []int{1, 30} {
				q := queues{servers: servers, clients: clients, finish: finish, budget: 10, seed: 1}
				of := []queues{q, q, q, q, q, q}
				for i, load := range []float64{.3, .5, .7, .8, .9, .95} {
					of[i].load = load
				}
				if few := (servers == 3) == (clients == 1); few {
					dear, slow := of[4], of[1]
					dear.budget, slow.slow = 30, true
					of = append(of, dear, slow)
				}
				for _, q := range of {
					if longtest.Full() || (q.load == .9 || q.slow) && (servers == 3) == (clients == 1) { // a few of each kind
						t.Run(q.String(), q.compare)
					}
				}
			}
		}
	}
}

// compare compares a load with and without hedging.
func (q queues) compare(t *testing.T) {
	// Queues at 95% are emptied seldom, so that a run has few busy times, and each weighs much.
	q.calls = longtest.Table(30_000, 30_000, map[bool]int{false: 200_000, true: 400_000}[q.load > .9])
	figures := func(budget float64, shed bool) ([3]float64, float64) {
		q.budget, q.shed = budget, shed
		c := q.run(t)
		return [3]float64{millis(c.Tail(.5)), millis(c.Tail(.99)), millis(c.Mean())}, c.Load()
	}
	most, slack, budget, name := map[bool]float64{false: 1.02, true: 1.10}[q.finish], 0.0, q.budget, q.String()
	if !longtest.Full() {
		slack = .02
	}
	plain, _ := figures(0, false)
	row := fmt.Sprintf("| %s | %.1f, %.0f, %.1f |", name, plain[0], plain[1], plain[2])
	if longtest.Full() {
		f, load := figures(budget, false)
		row += fmt.Sprintf(" %.2f, %.2f, %.2f | %.0f%% |", f[0]/plain[0], f[1]/plain[1], f[2]/plain[2], 100*load)
	}
	f, load := figures(budget, true)
	for i, what := range []string{"p50", "p99", "mean"} {
		// Where servers have room for hedges, these delay primaries.
		if f[i] /= plain[i]; f[i] > max(most, []float64{1.035, 0, 0}[i])+slack {
			t.Errorf("%s is %.3f of plain's, want at most %v", what, f[i], most)
		}
	}
	t.Logf("%s %.2f, %.2f, %.2f | %.0f%% |", row, f[0], f[1], f[2], 100*load)
	if q.servers == 20 && q.load == .9 && !q.finish && f[1] > .73+slack {
		t.Errorf("p99 is %.3f of plain's, want at most .73", f[1])
	}
}
