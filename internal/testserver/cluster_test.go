package testserver_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/proto/hybridpb"
	"github.com/grpchedge/hedge/proto/opaquepb"
	"github.com/grpchedge/hedge/proto/openpb"
)

// reach calls until every backend has answered. A call that is caught by a
// connection on its way down is made again.
func reach(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seen := make(map[uint32]bool)
	for len(seen) < cluster.Backends() {
		var from peer.Peer
		req := &testpb.Request{Id: 7, ReplyBytes: 100}
		reply, err := client.Unary(ctx, req, grpc.Peer(&from), grpc.WaitForReady(true))
		if status.Code(err) == codes.Unavailable {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := testserver.Check(req, 0, reply); err != nil {
			t.Fatal(err)
		}
		if got, want := from.Addr.String(), cluster.Address(int(reply.GetBackend())); got != want {
			t.Fatalf("backend %d answered from %s, want %s", reply.GetBackend(), got, want)
		}
		seen[reply.GetBackend()] = true
	}
}

func TestRoundRobinOverLoopback(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{Backends: 3})
	conn := cluster.ClientT(t)
	client := testpb.NewTestServiceClient(conn)
	if conn.Target() != cluster.Target() {
		t.Errorf("the connection has target %q, the cluster %q", conn.Target(), cluster.Target())
	}
	reach(t, cluster, client)
	cluster.Reset()
	for range 30 {
		if _, err := client.Unary(t.Context(), &testpb.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if got := cluster.BackendCounts(i).Attempts; got != 10 {
			t.Errorf("backend %d saw %d of 30 calls", i, got)
		}
	}
}

func TestRoundRobinInMemory(t *testing.T) {
	// With no latency at all reach would not let the time pass in which the
	// client connects.
	config := testserver.Config{Backends: 3, Latency: testserver.Constant(ms)}
	inBubble(t, config, func(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
		reach(t, cluster, client)
	})
}

func TestEveryMethodAnswers(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{})
	client := testpb.NewTestServiceClient(cluster.ClientT(t))
	req := &testpb.Request{Id: 7, Messages: 2, ReplyBytes: 200_000}
	type unary func(context.Context, *testpb.Request, ...grpc.CallOption) (*testpb.Reply, error)
	for _, call := range []unary{client.Unary, client.UnaryNoSideEffects, client.UnaryIdempotent} {
		reply, err := call(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if err := testserver.Check(req, 0, reply); err != nil {
			t.Error(err)
		}
	}
	type stream func(context.Context, *testpb.Request, ...grpc.CallOption) (grpc.ServerStreamingClient[testpb.Reply], error)
	for _, call := range []stream{client.ServerStream, client.ServerStreamIdempotent} {
		s, err := call(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint32(2) {
			reply, err := s.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if err := testserver.Check(req, i, reply); err != nil {
				t.Error(err)
			}
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ended with %v", err)
		}
	}
	for _, r := range cluster.Records() {
		if r.ID != 7 || r.Metadata.Get("content-type") == nil {
			t.Errorf("recorded %+v", r)
		}
	}
}

func TestReplyInEachAPI(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{})
	conn := cluster.ClientT(t)
	req := &testpb.Request{Id: 7, ReplyBytes: 100}
	for _, reply := range []testserver.Reply{&openpb.Reply{}, &hybridpb.Reply{}, &opaquepb.Reply{}} {
		if err := conn.Invoke(t.Context(), testpb.TestService_Unary_FullMethodName, req, reply); err != nil {
			t.Fatal(err)
		}
		if err := testserver.Check(req, 0, reply); err != nil {
			t.Errorf("%T: %v", reply, err)
		}
	}
}

func TestCheckFindsWrongReplies(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{})
	client := testpb.NewTestServiceClient(cluster.ClientT(t))
	req := &testpb.Request{Id: 7, ReplyBytes: 100}
	for name, spoil := range map[string]func(*testpb.Reply){
		"id":       func(r *testpb.Reply) { r.Id++ },
		"sequence": func(r *testpb.Reply) { r.Sequence++ },
		"backend":  func(r *testpb.Reply) { r.Backend++ },
		"attempt":  func(r *testpb.Reply) { r.Attempt++ },
		"payload":  func(r *testpb.Reply) { r.Payload[99]++ },
		"size":     func(r *testpb.Reply) { r.Payload = r.Payload[:99] },
		"emptied":  func(r *testpb.Reply) { r.Reset() },
	} {
		reply, err := client.Unary(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		spoil(reply)
		if testserver.Check(req, 0, reply) == nil {
			t.Errorf("%s: a spoilt reply passed", name)
		}
	}
}

func TestCloseConnOverLoopback(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{})
	client := testpb.NewTestServiceClient(cluster.ClientT(t))
	reach(t, cluster, client)
	cluster.SetScript(always(testserver.Plan{Ending: testserver.CloseConn}))
	if _, err := client.Unary(t.Context(), &testpb.Request{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call whose connection is closed: %v", err)
	}
	cluster.SetScript(nil)
	reach(t, cluster, client)
}

func TestGoAway(t *testing.T) {
	script := func(a testserver.Attempt) testserver.Plan {
		return testserver.Plan{Delay: time.Second, GoAway: a.ID == 1}
	}
	inBubble(t, testserver.Config{Script: script}, func(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
		if _, err := client.Unary(t.Context(), &testpb.Request{Id: 1}); err != nil {
			t.Errorf("the call during which the backend went away: %v", err)
		}
		synctest.Wait()
		if _, err := client.Unary(t.Context(), &testpb.Request{Id: 2}); status.Code(err) != codes.Unavailable {
			t.Errorf("a call after the backend went away: %v", err)
		}
		if err := cluster.Restart(0); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Unary(t.Context(), &testpb.Request{Id: 3}, grpc.WaitForReady(true)); err != nil {
			t.Errorf("a call after the backend came back: %v", err)
		}
	})
}

func TestStopAndRestartOverLoopback(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{Backends: 2})
	stopAndRestart(t, cluster, testpb.NewTestServiceClient(cluster.ClientT(t)))
}

func TestStopAndRestartInMemory(t *testing.T) {
	inBubble(t, testserver.Config{Backends: 2, Latency: testserver.Constant(ms)}, stopAndRestart)
}

func stopAndRestart(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
	reach(t, cluster, client)
	address := cluster.Address(0)
	cluster.Stop(0)
	cluster.Stop(0) // once more changes nothing
	if conn, err := cluster.Dial(t.Context(), address); err == nil {
		conn.Close()
		t.Error("a stopped backend can be dialled")
	}
	cluster.Drain(1)
	for i := range 2 {
		if err := cluster.Restart(i); err != nil {
			t.Fatal(err)
		}
	}
	if cluster.Address(0) != address {
		t.Errorf("the backend came back at %s, was at %s", cluster.Address(0), address)
	}
	reach(t, cluster, client)
}

// Attempts that would never end must not keep Close, Stop or a drain waiting.
func TestCloseEndsWhatHangs(t *testing.T) {
	plan := testserver.Plan{Ending: testserver.Hang}
	inBubble(t, testserver.Config{Script: always(plan)}, func(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
		call := func() {
			if _, err := client.Unary(t.Context(), &testpb.Request{}, grpc.WaitForReady(true)); err == nil {
				t.Error("a call that hangs was answered")
			}
		}
		go call()
		synctest.Wait()
		cluster.Drain(0)
		synctest.Wait()
		if got := cluster.Counts().InFlight; got != 1 {
			t.Errorf("%d in flight during the drain, want 1", got)
		}
		if err := cluster.Restart(0); err != nil {
			t.Fatal(err)
		}
		go call()
		time.Sleep(time.Minute) // the client redials
		cluster.Close()
		synctest.Wait()
		if got := cluster.Counts().InFlight; got != 0 {
			t.Errorf("%d in flight after Close", got)
		}
		if _, err := cluster.Client(); err == nil {
			t.Error("a closed cluster gives out connections")
		}
		if err := cluster.Restart(0); err == nil {
			t.Error("a closed cluster can be restarted")
		}
	})
}

func TestDialCanBeWrapped(t *testing.T) {
	cluster := testserver.StartT(t, testserver.Config{Backends: 2})
	var mu sync.Mutex
	dialled := make(map[string]bool)
	conn := cluster.ClientT(t, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		mu.Lock()
		dialled[address] = true
		mu.Unlock()
		return cluster.Dial(ctx, address)
	}))
	reach(t, cluster, testpb.NewTestServiceClient(conn))
	mu.Lock()
	defer mu.Unlock()
	if !dialled[cluster.Address(0)] || !dialled[cluster.Address(1)] {
		t.Errorf("dialled %v", dialled)
	}
	if _, err := cluster.Dial(t.Context(), "elsewhere"); err == nil {
		t.Error("an address of no backend can be dialled")
	}
}

func TestStartRejectsConfig(t *testing.T) {
	for want, config := range map[string]testserver.Config{
		"testserver: backends must be at least 0, got -1": {Backends: -1},
		"testserver: workers must be at least 0, got -2":  {Workers: -2},
	} {
		if _, err := testserver.Start(config); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// At the load of the demo and beyond, calls of every outcome are counted right.
func TestManyCallsAtOnce(t *testing.T) {
	config := testserver.Config{
		Backends: 3,
		Latency:  testserver.Straggler(testserver.Uniform(0, ms), 0.1, 10),
	}
	inBubble(t, config, func(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
		const callers, calls = 20, 40
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for i := range calls {
					req := &testpb.Request{Id: uint64(caller*calls + i), ReplyBytes: 10}
					ctx, cancel := context.WithTimeout(t.Context(), 5*ms)
					reply, err := client.Unary(ctx, req)
					cancel()
					if err == nil {
						err = testserver.Check(req, 0, reply)
					}
					if err != nil && status.Code(err) != codes.DeadlineExceeded {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := cluster.WaitIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
		counts := cluster.Counts()
		if counts.Attempts != callers*calls || counts.InFlight != 0 || counts.Messages+counts.Failed+counts.Cancelled != counts.Attempts {
			t.Errorf("counted %+v of %d calls", counts, callers*calls)
		}
		if got := len(cluster.Records()); got != callers*calls {
			t.Errorf("%d records of %d calls", got, callers*calls)
		}
	})
}
