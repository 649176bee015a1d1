package balancer_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
)

const ms = time.Millisecond

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wrapped is the policy above a child, given as an entry of childPolicy, with further fields.
func wrapped(child string, fields ...string) string {
	more := ""
	for _, f := range fields {
		more += ", " + f
	}
	return fmt.Sprintf(`{%q: {"childPolicy": [%s]%s}}`, balancer.Name, child, more)
}

// over is the dial option of the wrapped policy, and bare is the option of a policy by itself.
func over(child string, fields ...string) grpc.DialOption { return bare(wrapped(child, fields...)) }

func bare(policy string) grpc.DialOption { return grpc.WithDefaultServiceConfig(serviceConfig(policy)) }

func serviceConfig(policy string) string {
	return fmt.Sprintf(`{"loadBalancingConfig": [%s]}`, policy)
}

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
	return cluster, connect(t, cluster, s, options...)
}

func connect(t *testing.T, cluster *testserver.Cluster, s *hedge.Scheduler,
	options ...grpc.DialOption) testpb.TestServiceClient {
	t.Helper()
	conn := cluster.ClientT(t, append(hedgetest.Interceptors(s), options...)...)
	testserver.ConnectT(t, conn)
	synctest.Wait()
	return testpb.NewTestServiceClient(conn)
}

type kind hedgetest.Kind

var unary, stream kind = hedgetest.Unary, hedgetest.Stream

// must makes a call that may not fail.
func (k kind) must(t *testing.T, c testpb.TestServiceClient, id uint64, opts ...grpc.CallOption) *testpb.Reply {
	t.Helper()
	reply, err := k(t.Context(), c, &testpb.Request{Id: id}, opts...)
	if err != nil {
		t.Fatalf("call %d: %v", id, err)
	}
	return reply
}

func eachKind(t *testing.T, test func(t *testing.T, k kind)) {
	hedgetest.EachKind(t, func(t *testing.T, k hedgetest.Kind) { test(t, kind(k)) })
}

// traffic makes the calls of a simulation. The calls may end with one of the codes.
func (k kind) traffic(t *testing.T, client testpb.TestServiceClient, calls simulation.Client,
	may ...codes.Code) simulation.Calls {
	return calls.Through(t, func(ctx context.Context, id uint64) error {
		reply, err := k(ctx, client, &testpb.Request{Id: id})
		if end, ok := ctx.Deadline(); status.Code(err) == codes.Canceled && ok && !time.Now().Before(end) {
			// In virtual time the server's copy of the deadline passes in the same instant as the
			// client's, and gRPC returns CANCELED if the server's end of the stream comes first.
			err = status.Error(codes.DeadlineExceeded, err.Error())
		}
		if err == nil && reply.Id != id {
			t.Errorf("the reply of call %d is that of call %d", id, reply.Id)
		}
		if err != nil && !slices.Contains(may, status.Code(err)) {
			t.Errorf("call %d: %v", id, err)
		}
		return err
	})
}

// visited returns the backends that the attempts of a request met, in the order of their numbers.
func visited(cluster *testserver.Cluster, id uint64) (backends []int) {
	records := cluster.RecordsOf(id)
	slices.SortFunc(records, func(a, b testserver.Record) int { return a.Number - b.Number })
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

// dealer is a client of addresses in front of a cluster, each of which may stand for all backends,
// as a Kubernetes service's does: connections are then dealt to the backends in turn. The test may
// change the addresses and the policy, and loses packets.
type dealer struct {
	cluster *testserver.Cluster
	conn    *grpc.ClientConn
	client  testpb.TestServiceClient
	names   *manual.Resolver

	mu    sync.Mutex
	wires []*wire
}

// wire is a connection that can drop packets.
type wire struct {
	net.Conn
	sending, coming atomic.Bool // lost writes; lost reads
	written         atomic.Int64
	closed          chan struct{}
	once            sync.Once
}

func dial(t *testing.T, cluster *testserver.Cluster, addresses int, deals bool, options ...grpc.DialOption) *dealer {
	t.Helper()
	d := &dealer{cluster: cluster, names: manual.NewBuilderWithScheme("dealt")}
	d.names.InitialState(d.addresses(addresses, 0))
	var dialed atomic.Int64
	conn, err := grpc.NewClient("dealt:///", append(options, grpc.WithResolvers(d.names),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if deals {
				address = cluster.Address(int(dialed.Add(1)-1) % cluster.Backends())
			}
			conn, err := cluster.Dial(ctx, address) // outside the lock: in a bubble, waiting for a lock stops time
			if err != nil {
				return nil, err
			}
			w := &wire{Conn: conn, closed: make(chan struct{})}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.wires = append(d.wires, w)
			return w, nil
		}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	d.conn, d.client = conn, testpb.NewTestServiceClient(conn)
	return d
}

func (d *dealer) connect(t *testing.T) {
	t.Helper()
	testserver.ConnectT(t, d.conn)
	synctest.Wait()
}

// addresses returns n of the cluster's addresses, from the given one on, as in a circle.
func (d *dealer) addresses(n, from int) (state resolver.State) {
	for i := range n {
		a := resolver.Address{Addr: d.cluster.Address((from + i) % d.cluster.Backends())}
		state.Addresses = append(state.Addresses, a)
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{a}})
	}
	return state
}

func (d *dealer) reconfigure(addresses, from int, policy string) {
	state := d.addresses(addresses, from)
	state.ServiceConfig = d.names.CC().ParseServiceConfig(serviceConfig(policy))
	d.names.UpdateState(state)
}

// open returns the number of open connections.
func (d *dealer) open() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.wires {
		select {
		case <-w.closed:
		default:
			n++
		}
	}
	return n
}

func (w *wire) Write(b []byte) (int, error) {
	w.written.Add(int64(len(b)))
	if w.sending.Load() {
		return len(b), nil
	}
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	for {
		n, err := w.Conn.Read(b)
		if !w.coming.Load() {
			return n, err
		}
		if err != nil { // nor does anything come of its end
			<-w.closed
			return 0, net.ErrClosed
		}
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}
