package testserver_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// A request with one of these ids hangs, a stream after its first message, or is answered after a
// second; others are answered at once.
const (
	hangs = 1_000_000 + iota
	takesASecond
)

func byID(a testserver.Attempt) testserver.Plan {
	switch a.ID {
	case hangs:
		return testserver.Plan{Ending: testserver.Hang, After: 1}
	case takesASecond:
		return testserver.Plan{Delay: time.Second}
	}
	return testserver.Plan{}
}

// resetCalls makes calls and cancels each when the server has it.
func resetCalls(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient, calls int) {
	t.Helper()
	for range calls {
		arrived := cluster.Counts().Attempts
		ctx, cancel := context.WithCancel(t.Context())
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			_, _ = client.Unary(ctx, &testpb.Request{Id: hangs})
		}()
		synctest.Wait()
		if cluster.Counts().Attempts == arrived {
			t.Fatal("the call did not arrive")
		}
		cancel()
		<-stop
		synctest.Wait()
	}
}

// TestLimit_EndsConnectionsThatResetTooMuch has a call in flight while others are reset, on one
// connection.
func TestLimit_EndsConnectionsThatResetTooMuch(t *testing.T) {
	const allowed = 3
	for _, tc := range []struct {
		name  string
		limit testserver.Limit
		pause time.Duration // before the last reset
		says  string        // in the error of the call in flight; "": it does not fail
		want  testserver.ConnCounts
	}{
		{"calm", testserver.Limit{Resets: allowed, Per: time.Minute, Close: testserver.CloseCalm,
			Debug: "too many frames"}, 0,
			`received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "too many frames"`,
			testserver.ConnCounts{Connections: 2, Requests: 6, Resets: 4, Cuts: 1}},
		{"silently", testserver.Limit{Resets: allowed, Per: time.Minute, Close: testserver.CloseSilently}, 0,
			"error reading from server: EOF",
			testserver.ConnCounts{Connections: 2, Requests: 6, Resets: 4, Cuts: 1}},
		{"gracefully", testserver.Limit{Resets: allowed}, 0, "",
			testserver.ConnCounts{Connections: 2, Requests: 6, Resets: 4, GoAways: 1}},
		{"not yet", testserver.Limit{Resets: allowed + 1, Close: testserver.CloseCalm}, 0, "",
			testserver.ConnCounts{Connections: 1, Requests: 6, Resets: 4}},
		{"not within that time", testserver.Limit{Resets: allowed, Per: 500 * time.Millisecond,
			Close: testserver.CloseCalm}, 500 * time.Millisecond, "",
			testserver.ConnCounts{Connections: 1, Requests: 6, Resets: 4}},
		{"just within that time", testserver.Limit{Resets: allowed, Per: 500 * time.Millisecond,
			Close: testserver.CloseSilently}, 500*time.Millisecond - 1, "EOF",
			testserver.ConnCounts{Connections: 2, Requests: 6, Resets: 4, Cuts: 1}},
		{"counted only", testserver.Limit{}, 0, "", testserver.ConnCounts{Connections: 1, Requests: 6, Resets: 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, testserver.Config{Script: byID, Limit: &tc.limit},
				func(t *testing.T, cluster *testserver.Cluster, client testpb.TestServiceClient) {
					var inFlight sync.WaitGroup
					var err error
					inFlight.Go(func() { _, err = client.Unary(t.Context(), &testpb.Request{Id: takesASecond}) })
					synctest.Wait()
					resetCalls(t, cluster, client, allowed)
					if n := cluster.ConnCounts(); n.Cuts+n.GoAways > 0 {
						t.Fatalf("after %d resets: %+v", allowed, n)
					}
					time.Sleep(tc.pause)
					resetCalls(t, cluster, client, 1)
					inFlight.Wait()
					if got := status.Code(err); (tc.says != "") != (got == codes.Unavailable) || err != nil &&
						!strings.Contains(err.Error(), tc.says) {
						t.Errorf("the call in flight returned %v, want %q", err, tc.says)
					}
					if _, err := client.Unary(t.Context(), &testpb.Request{Id: 1}); err != nil {
						t.Errorf("the call after it: %v", err)
					}
					if got := cluster.ConnCounts(); got != tc.want {
						t.Errorf("counts %+v, want %+v", got, tc.want)
					}
					cluster.Reset()
					if got := cluster.ConnCounts(); got != (testserver.ConnCounts{}) {
						t.Errorf("counts %+v after Reset", got)
					}
				})
		})
	}
}

// TestLimit_EndsConnectionsAfterRequests makes large calls from many goroutines on sockets, so that
// connections end while frames are half written: no call is served twice, and gRPC makes each that
// is ignored again. It does so once: a call that the next connection ignores too, because 50 others
// have overtaken it, fails with UNAVAILABLE.
func TestLimit_EndsConnectionsAfterRequests(t *testing.T) {
	const callers, calls, each = 16, 640, 50
	cluster := testserver.StartT(t, testserver.Config{Limit: &testserver.Limit{Requests: each}})
	client := testpb.NewTestServiceClient(cluster.ClientT(t))
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for id := next.Add(1); id <= calls; id = next.Add(1) {
				req := &testpb.Request{Id: uint64(id), ReplyBytes: 20_000}
				reply, err := client.Unary(t.Context(), req)
				for tries := 1; status.Code(err) == codes.Unavailable && tries < 5; tries++ {
					reply, err = client.Unary(t.Context(), req)
				}
				if err == nil {
					err = testserver.Check(req, 0, reply)
				}
				if err != nil && failed.Add(1) == 1 {
					t.Errorf("call %d: %v", id, err)
				}
			}
		})
	}
	wg.Wait()
	cluster.WaitIdleT(t)
	served := cluster.Counts().Attempts
	if served != calls {
		t.Errorf("%d calls were served, want %d", served, calls)
	}
	// The last calls are made on connections that are not through.
	got := cluster.ConnCounts()
	if got.Requests != calls || got.GoAways < calls/each-1 || got.GoAways > calls/each ||
		got.Connections < got.GoAways || got.Cuts > 0 {
		t.Errorf("counts %+v after %d calls", got, calls)
	}
}
