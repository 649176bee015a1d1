package cost

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// kind is a kind of call.
type kind struct {
	name string
	call func(context.Context, testpb.TestServiceClient, *testpb.Request) (*testpb.Reply, error)
}

var kinds = []kind{{"unary", unary}, {"stream", stream}, {"http", unary}}

// KindNames are the kinds of calls that can be measured.
var KindNames = []string{"unary", "stream", "http"}

func unary(ctx context.Context, client testpb.TestServiceClient, req *testpb.Request) (*testpb.Reply, error) {
	return client.Unary(ctx, req)
}

// stream makes a stream of one message.
func stream(ctx context.Context, client testpb.TestServiceClient, req *testpb.Request) (*testpb.Reply, error) {
	req.Messages = 1
	st, err := client.ServerStream(ctx, req)
	if err != nil {
		return nil, err
	}
	reply, err := st.Recv()
	if err != nil {
		return nil, err
	}
	if _, err := st.Recv(); err != io.EOF {
		return nil, fmt.Errorf("the end of the stream was %v", err)
	}
	return reply, nil
}

// caller makes calls, as many at once as concurrency says.
type caller struct {
	end         func() // closes its connections; nil if it could not connect
	client      testpb.TestServiceClient
	kind        kind
	concurrency int
	peer        bool // a wrong reply or a failed call is counted; otherwise it is an error
}

func (c caller) close() {
	if c.end != nil {
		c.end()
	}
}

// slice is the measurement of one contestant's turn.
type slice struct {
	calls, wrong int64
	took, busy   time.Duration // busy is processor time of this process
}

func (s slice) rate() float64        { return float64(s.calls) / s.took.Seconds() }
func (s slice) busyPerCall() float64 { return s.busy.Seconds() / float64(s.calls) }

// run makes calls for the time d.
func (c caller) run(ctx context.Context, d time.Duration) (slice, error) {
	var calls, wrong, id atomic.Int64
	var over atomic.Bool
	var firstErr atomic.Pointer[error]
	time.AfterFunc(d, func() { over.Store(true) })
	start, busy := time.Now(), processorTime()
	var wg sync.WaitGroup
	for range c.concurrency {
		wg.Go(func() {
			n := int64(0)
			defer func() { calls.Add(n) }()
			for ; n == 0 || !over.Load(); n++ {
				req := &testpb.Request{Id: uint64(id.Add(1))}
				reply, err := c.kind.call(ctx, c.client, req)
				if err == nil {
					err = testserver.Check(req, 0, reply)
				}
				switch {
				case err == nil:
				case c.peer:
					wrong.Add(1)
				default:
					firstErr.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	wg.Wait()
	s := slice{calls: calls.Load(), wrong: wrong.Load(), took: time.Since(start), busy: processorTime() - busy}
	if err := firstErr.Load(); err != nil {
		return s, *err
	}
	return s, nil
}
