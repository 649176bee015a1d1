package testserver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
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
	client := testpb.NewTestServiceClient(cluster.ClientT(t))
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
