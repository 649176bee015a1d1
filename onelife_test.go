package hedge_test

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestRule07_OneLife makes 1,000 calls and 1,000 streams, from the first one on, to three servers where one attempt in ten takes
// 300 ms, with nothing tuned. Each loser that had not answered sees its context end within 50 ms of the moment at which its
// caller had the outcome, by the servers' own count. After the last call nothing runs, and the servers stop at once.
func TestRule07_OneLife(t *testing.T) {
	const calls, callers = 1_000, 20
	cluster := testserver.StartT(t, testserver.Config{Backends: 3, Script: func(a testserver.Attempt) testserver.Plan {
		if (a.ID*7919+uint64(a.Number)*31)%10 == 0 {
			return testserver.Plan{Delay: 300 * ms}
		}
		return testserver.Plan{Delay: 2 * ms}
	}})
	s := hedgetest.New(t, hedge.WithReadOnlyMethods("/*/*"))
	conn := cluster.ClientT(t, hedgetest.Interceptors(s)...)
	testserver.ConnectT(t, conn)
	client := testpb.NewTestServiceClient(conn)
	stalled := watchTheMachine(t)
	running := goleak.IgnoreCurrent()

	var outcomes sync.Map // id → decision
	var next atomic.Uint64
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for id := next.Add(1); id <= 2*calls; id = next.Add(1) {
				r := &testpb.Request{Id: id}
				call := client.Unary
				if id%2 == 0 {
					call = firstMessage(client)
				}
				reply, err := call(t.Context(), r)
				if err != nil || reply.Id != id {
					t.Errorf("call %d: %v, %v", id, reply, err)
					return
				}
				outcomes.Store(id, decision{int(reply.Attempt), time.Now()})
			}
		})
	}
	group.Wait()
	ended := time.Now()
	cluster.GracefulStop()
	if took, most := time.Since(ended), 100*ms+stalled(); took > most {
		t.Errorf("the servers took %v to stop, want at most %v", took, most)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := goleak.Find(running); err != nil {
		t.Error(err)
	}

	losers := 0
	for _, r := range cluster.Records() {
		known, ok := outcomes.Load(r.ID)
		if !ok {
			if r.ID > 0 || !r.WasCancelled() { // without an id, it was cancelled before its request came
				t.Errorf("%+v", r)
			}
			continue
		}
		o := known.(decision)
		if r.Number == o.winner || len(r.Sent) > 0 && !r.Sent[0].After(o.at) {
			continue
		}
		losers++
		// Without a cancellation it answered while that was on its way.
		if after := r.Ended.Sub(o.at); r.Ended.IsZero() || after > 50*ms+stalled() {
			t.Errorf("attempt %d of call %d ended %v after the outcome, cancelled: %t", r.Number, r.ID, after, r.WasCancelled())
		}
	}
	if losers < 20 {
		t.Errorf("%d losers, too few to say anything", losers)
	}
	t.Logf("%d losers that had not answered; the machine stood still for %v", losers, stalled())
}

type decision struct {
	winner int
	at     time.Time
}

// firstMessage is a stream as a call: it has two messages, and is read to its end after the first one was noted.
func firstMessage(client testpb.TestServiceClient) func(context.Context, *testpb.Request, ...grpc.CallOption) (*testpb.Reply, error) {
	return func(ctx context.Context, r *testpb.Request, opts ...grpc.CallOption) (*testpb.Reply, error) {
		r.Messages = 2
		st, err := client.ServerStream(ctx, r, opts...)
		if err != nil {
			return nil, err
		}
		reply, err := st.Recv()
		for err == nil {
			_, err = st.Recv()
		}
		if err == io.EOF {
			err = nil
		}
		return reply, err
	}
}

// watchTheMachine returns how long the machine has let nothing run at a time, at most, until the test ends.
func watchTheMachine(t *testing.T) (longest func() time.Duration) {
	var most atomic.Int64
	var group sync.WaitGroup
	group.Go(func() {
		for last := time.Now(); t.Context().Err() == nil; {
			select {
			case <-time.After(ms):
			case <-t.Context().Done():
			}
			now := time.Now()
			most.Store(max(most.Load(), int64(now.Sub(last)-ms)))
			last = now
		}
	})
	t.Cleanup(group.Wait)
	return func() time.Duration { return time.Duration(most.Load()) }
}
