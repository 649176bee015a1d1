package testserver_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

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
	inBubble(t, testserver.Config{Script: script},
		func(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
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

// Attempts that would never end must not keep Close, Stop or a drain waiting.
func TestCloseEndsWhatHangs(t *testing.T) {
	plan := testserver.Plan{Ending: testserver.Hang}
	inBubble(t, testserver.Config{Script: always(plan)},
		func(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
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
