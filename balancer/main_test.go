package balancer_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

const ms = time.Millisecond

// serveInstead reports whether this process was a server, in a binary that can be one.
var serveInstead = func() bool { return false }

func TestMain(m *testing.M) {
	if !serveInstead() {
		goleak.VerifyTestMain(m)
	}
}

// over is the dial option that has the policy wrap a child, given as an entry of childPolicy.
func over(child string) grpc.DialOption { return bare(wrapped(child)) }

// with is the same with further fields of the policy's configuration.
func with(child, fields string) grpc.DialOption { return bare(policy(child, fields)) }

func policy(child, fields string) string {
	return fmt.Sprintf(`{%q: {"childPolicy": [%s], %s}}`, balancer.Name, child, fields)
}

func wrapped(child string) string {
	return fmt.Sprintf(`{%q: {"childPolicy": [%s]}}`, balancer.Name, child)
}

// bare is the dial option of a policy that this package does not wrap.
func bare(policy string) grpc.DialOption {
	return grpc.WithDefaultServiceConfig(fmt.Sprintf(`{"loadBalancingConfig": [%s]}`, policy))
}

// plain is the usual dial option for several backends.
var plain = bare(roundRobin)

const (
	roundRobin   = `{"round_robin": {}}`
	leastRequest = `{"least_request_experimental": {"choiceCount": 2}}`
	pickFirst    = `{"pick_first": {}}`
)

// play starts a cluster in memory, and returns it with a client that hedges by s. Every backend that
// the policy connects to by itself is connected.
func play(t *testing.T, c testserver.Config, s *hedge.Scheduler, options ...grpc.DialOption) (
	*testserver.Cluster, testpb.TestServiceClient) {
	t.Helper()
	c.InMemory = true
	cluster := testserver.StartT(t, c)
	conn := cluster.ClientT(t, append(hedgetest.Interceptors(s), options...)...)
	testserver.ConnectT(t, conn)
	synctest.Wait()
	return cluster, testpb.NewTestServiceClient(conn)
}

// kind is a way to make a call of one reply.
type kind struct {
	name string
	call func(ctx context.Context, c testpb.TestServiceClient, req *testpb.Request,
		opts ...grpc.CallOption) (*testpb.Reply, error)
}

// must makes a call that may not fail.
func (k kind) must(t *testing.T, c testpb.TestServiceClient, id uint64, opts ...grpc.CallOption) *testpb.Reply {
	t.Helper()
	reply, err := k.call(t.Context(), c, &testpb.Request{Id: id}, opts...)
	if err != nil {
		t.Fatalf("call %d: %v", id, err)
	}
	return reply
}

var kinds = []kind{
	{"unary", func(ctx context.Context, c testpb.TestServiceClient, req *testpb.Request,
		opts ...grpc.CallOption) (*testpb.Reply, error) {
		return c.Unary(ctx, req, opts...)
	}},
	{"stream", func(ctx context.Context, c testpb.TestServiceClient, req *testpb.Request,
		opts ...grpc.CallOption) (*testpb.Reply, error) {
		req.Messages = 1
		st, err := c.ServerStream(ctx, req, opts...)
		if err != nil {
			return nil, err
		}
		first, err := st.Recv()
		for err == nil {
			_, err = st.Recv()
		}
		if err == io.EOF {
			err = nil
		}
		return first, err
	}},
}

// inBubble runs a test of each kind of call in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, k kind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, k) })
		})
	}
}

// visited returns the backends that the attempts of a request met, in the order of their numbers.
func visited(cluster *testserver.Cluster, id uint64) []int {
	records := cluster.RecordsOf(id)
	slices.SortFunc(records, func(a, b testserver.Record) int { return a.Number - b.Number })
	var backends []int
	for _, r := range records {
		backends = append(backends, r.Backend)
	}
	return backends
}

// different is how many different backends there are among those visited.
func different(backends []int) int {
	return len(slices.Compact(slices.Sorted(slices.Values(backends))))
}

// lastAnswers is a script in which only the given attempt answers.
func lastAnswers(number int) testserver.Script {
	return func(a testserver.Attempt) testserver.Plan {
		if a.Number == number {
			return testserver.Plan{}
		}
		return testserver.Plan{Ending: testserver.Hang}
	}
}

// traffic is calls that begin at random times and do not wait for each other.
type traffic struct {
	kind     kind
	rate     float64 // calls a second
	calls    int     // 0: as many as begin in
	lasts    time.Duration
	deadline time.Duration // of each; 0: none
	rng      *rand.Rand
	may      []codes.Code // be the end of a call
}

func (tr traffic) run(t *testing.T, client testpb.TestServiceClient) simulation.Calls {
	var mu sync.Mutex
	var all simulation.Calls
	var group sync.WaitGroup
	began := time.Now()
	for next, id := began, uint64(0); int(id) < tr.calls || tr.calls == 0 && next.Sub(began) < tr.lasts; id++ {
		if wait := time.Until(next); wait > 0 {
			<-time.After(wait)
		}
		at := next.Sub(began)
		group.Go(func() {
			ctx := t.Context()
			if tr.deadline > 0 {
				with, cancel := context.WithTimeout(ctx, tr.deadline)
				defer cancel()
				ctx = with
			}
			began := time.Now() // no call waits for another: late pacing is due to the machine
			reply, err := tr.kind.call(ctx, client, &testpb.Request{Id: id})
			if status.Code(err) == codes.Canceled && tr.deadline > 0 && time.Since(began) >= tr.deadline {
				// In virtual time the server's copy of the deadline passes in the same instant as
				// the client's, and gRPC returns CANCELED if the server's end of the stream comes
				// first.
				err = status.Error(codes.DeadlineExceeded, err.Error())
			}
			if err == nil && reply.Id != id {
				t.Errorf("the reply of call %d is that of call %d", id, reply.Id)
			}
			if err != nil && !slices.Contains(tr.may, status.Code(err)) {
				t.Errorf("after %v: %v", at, err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, simulation.Call{ID: id, At: at, Took: time.Since(began), Err: err})
		})
		next = next.Add(time.Duration(tr.rng.ExpFloat64() / tr.rate * float64(time.Second)))
	}
	group.Wait()
	return all
}

// simulated is the outcome of traffic.
type simulated struct {
	all     simulation.Calls
	row     stats.Method
	records []testserver.Record
}

// simulate sends traffic to three backends in virtual time.
func simulate(t *testing.T, c testserver.Config, option grpc.DialOption,
	script func(began time.Time) testserver.Script, tr traffic, opts ...hedge.Option) (r simulated) {
	c.Backends, c.DrawByID = 3, true
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, opts...)
		cluster, client := play(t, c, s, option)
		cluster.SetScript(script(time.Now()))
		r.all = tr.run(t, client)
		synctest.Wait()
		r.row, r.records = s.Methods()[0], cluster.Records()
	})
	return r
}

func generator(a, b uint64) *rand.Rand { return rand.New(rand.NewPCG(a, b)) }
