package acceptance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	"github.com/grpchedge/hedge/internal/runqueue"
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

// trailing is the server's side of an attempt, which keeps the trailer.
type trailing struct {
	grpc.ServerTransportStream
	trailer metadata.MD
}

func (t *trailing) SetTrailer(md metadata.MD) error {
	t.trailer = md
	return nil
}

// used is the servers that a call has met.
type used struct {
	mu   sync.Mutex
	list []int
}

// other returns a server that the call has not met; false if there is none.
func (u *used) other(servers int, r *rand.Rand) (int, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.list) == servers {
		return 0, false
	}
	for {
		if n := r.IntN(servers); !slices.Contains(u.list, n) {
			u.list = append(u.list, n)
			return n, true
		}
	}
}

type usedKey struct{}

// run returns the calls in the order of their ids.
func (q queues) run(t *testing.T) (calls simulation.Calls) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer runqueue.Replace(func() time.Duration { return 0 })()
		servers := make([]*queueServer, q.servers)
		rate := float64(q.servers) * q.load / service.Seconds()
		span := time.Duration(float64(q.calls) / rate * float64(time.Second))
		began := time.Now()
		for n := range servers {
			s := &queueServer{worker: make(chan struct{}, 1)}
			var err error
			if s.bound, err = shed.New(shed.WithBusy(func() bool { return len(s.worker) > 0 })); err != nil {
				t.Fatal(err)
			}
			servers[n] = s
		}
		serve := func(ctx context.Context, n int, d time.Duration) error {
			s := servers[n]
			if at := time.Since(began); q.slow && n < q.servers/3 && at > span/3 && at < 2*span/3 {
				d *= 2
			}
			if q.finish {
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
			select {
			case s.worker <- struct{}{}:
			case <-ctx.Done():
				return status.FromContextError(ctx.Err()).Err()
			}
			time.AfterFunc(d, func() { <-s.worker })
			_, err := hedgetest.Taking(d)(ctx)
			return err
		}
		attempt := func(ctx context.Context, id uint64, number int) (metadata.MD, error) {
			r := simulation.Generator(q.seed, id, number)
			n, ok := ctx.Value(usedKey{}).(*used).other(q.servers, r)
			if !ok {
				return metadata.Pairs("grpc-retry-pushback-ms", "0"), status.Error(codes.ResourceExhausted, "no other server")
			}
			d := time.Duration(r.ExpFloat64() * float64(service))
			if !q.shed || number == 0 {
				return nil, serve(ctx, n, d)
			}
			md, _ := metadata.FromOutgoingContext(ctx)
			st := &trailing{}
			_, err := servers[n].bound.Unary(
				grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(ctx, md), st), nil, nil,
				func(context.Context, any) (any, error) { return nil, serve(ctx, n, d) })
			return st.trailer, err
		}
		invoker := func(ctx context.Context, _ string, req, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
			number := simulation.AttemptOf(ctx)
			if number > 0 {
				calls[req.(*testpb.Request).Id].Attempts++
			}
			trailer, err := attempt(ctx, req.(*testpb.Request).Id, number)
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
			if q.budget > 0 {
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
				ctx := context.WithValue(t.Context(), usedKey{}, &used{})
				if client == nil {
					c.Err = invoker(ctx, simulation.Method, &testpb.Request{Id: id}, nil, nil)
				} else {
					c.Err = client(ctx, simulation.Method, &testpb.Request{Id: id}, &testpb.Reply{}, nil, invoker)
				}
				if c.Took = time.Since(began) - c.At; c.Err != nil {
					t.Error(c.Err)
				}
			})
		}
		all.Wait()
		synctest.Wait()
		time.Sleep(time.Minute) // for work that goes on
	})
	return calls
}

// TestQueues_NoWorseThanPlain offers loads to servers with queues, and compares the latency
// with that of the same calls without hedging. Servers shed. Without shedding, the figures are only
// logged.
func TestQueues_NoWorseThanPlain(t *testing.T) {
	longtest.Simulation(t)
	var cases []queues
	for _, servers := range []int{3, 20} {
		for _, finish := range []bool{false, true} {
			for _, clients := range []int{1, 30} {
				for _, load := range []float64{.3, .5, .7, .8, .9, .95} {
					cases = append(cases, queues{servers: servers, load: load, clients: clients, finish: finish, budget: 10})
				}
			}
		}
	}
	cases = append(cases,
		queues{servers: 3, load: .9, clients: 1, budget: 30}, queues{servers: 20, load: .9, clients: 30, budget: 30},
		queues{servers: 3, load: .9, clients: 1, budget: 30, finish: true}, queues{servers: 20, load: .9,
			clients: 30, budget: 30, finish: true},
		queues{servers: 3, load: .5, clients: 1, budget: 10, slow: true}, queues{servers: 20, load: .5,
			clients: 30, budget: 10, slow: true},
		queues{servers: 3, load: .5, clients: 1, budget: 10, slow: true, finish: true}, queues{servers: 20,
			load: .5, clients: 30, budget: 10, slow: true, finish: true})
	for _, q := range cases {
		if !longtest.Full() && (q.load != .9 && !q.slow || q.servers == 3 == (q.clients == 30)) { // a few of each kind
			continue
		}
		t.Run(q.String(), func(t *testing.T) {
			// Queues at 95% are emptied seldom, so that a run has few busy times, and each weighs
			// much.
			q.calls, q.seed = longtest.Table(30_000, 30_000, map[bool]int{false: 200_000, true: 400_000}[q.load > .9]), 1
			figures := func(budget float64, shed bool) (f [3]float64, load float64) {
				q := q
				q.budget, q.shed = budget, shed
				c := q.run(t)
				return [3]float64{millis(c.Tail(.5)), millis(c.Tail(.99)), millis(c.Mean())}, c.Load()
			}
			most, slack := 1.02, 0.0
			if q.finish {
				most = 1.10
			}
			if !longtest.Full() {
				slack = .02
			}
			plain, _ := figures(0, false)
			var row strings.Builder
			for _, shed := range []bool{false, true} {
				if !shed && !longtest.Full() {
					continue
				}
				f, load := figures(q.budget, shed)
				for i, what := range []string{"p50", "p99", "mean"} {
					f[i] /= plain[i]
					most := most
					if i == 0 { // where servers have room for hedges, these delay primaries
						most = max(most, 1.035)
					}
					if shed && f[i] > most+slack {
						t.Errorf("%s is %.3f of plain's, want at most %v", what, f[i], most)
					}
				}
				fmt.Fprintf(&row, " %.2f, %.2f, %.2f | %.0f%% |", f[0], f[1], f[2], 100*load)
				if shed && q.servers == 20 && q.load == .9 && !q.finish && f[1] > .73+slack {
					t.Errorf("p99 is %.3f of plain's, want at most .73", f[1])
				}
			}
			t.Logf("| %v | %.1f, %.0f, %.1f |%s", q, plain[0], plain[1], plain[2], row.String())
		})
	}
}
