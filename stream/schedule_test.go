package stream_test

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/model"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
	"github.com/grpchedge/hedge/stream"
)

// driven is a call that several goroutines drive, as TestSchedules draws it. Its attempts give the
// same answer at different times, so that its result is plain gRPC's.
type driven struct {
	seed     uint64
	delay    time.Duration // of hedges
	plans    []testserver.Plan
	send     time.Duration   // when the sender sends
	receive  time.Duration   // when the receiver comes
	headers  []time.Duration // when Header is asked for, one after the other
	contexts []time.Duration // when Context is
	byOne    bool            // the receiver asks for them itself, before it receives
	cancel   time.Duration   // 0: never
	waits    bool            // WaitForMessage
}

func drawDriven(seed uint64) driven {
	r := model.New(seed, 2)
	d := driven{seed: seed, delay: r.Within(40 * ms), send: r.Within(10*ms) * time.Duration(r.IntN(2)),
		receive: r.Within(60*ms) * time.Duration(r.IntN(2)), byOne: r.IntN(3) == 0, waits: r.IntN(3) == 0}
	answer := testserver.Plan{Messages: r.IntN(4), Interval: 5 * ms, Trailer: metadata.Pairs("end", "reached")}
	answer.Empty = answer.Messages == 0
	if r.IntN(3) == 0 {
		answer.Code, answer.After = []codes.Code{codes.NotFound, codes.Unavailable}[r.IntN(2)], answer.Messages
	}
	withHeader := r.IntN(2) == 0
	if withHeader {
		answer.Header = metadata.Pairs("is", "there")
	}
	for range 3 {
		p := answer
		p.Delay = r.Within(80 * ms)
		p.HeaderAtOnce = r.IntN(3) == 0 && (withHeader || p.Messages > 0)
		d.plans = append(d.plans, p)
	}
	for range r.IntN(3) {
		d.headers = append(d.headers, r.Within(50*ms))
	}
	for range r.IntN(4) {
		d.contexts = append(d.contexts, r.Within(50*ms))
	}
	if r.IntN(4) == 0 {
		d.cancel = r.Within(100 * ms)
	}
	return d
}

// came is the result of a call.
type came struct {
	messages []uint32 // sequence numbers
	code     codes.Code
	headers  [][]string // of each Header; nil for none
	trailer  []string
	times    []time.Duration // when each Header returned
}

// play drives the call on a connection from all goroutines at once.
func (d driven) play(t *testing.T, cluster *testserver.Cluster, conn *grpc.ClientConn) came {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "a value"))
	defer cancel()
	var c came
	var finished atomic.Int64
	var mu sync.Mutex
	began := time.Now()
	st, err := conn.NewStream(ctx, &testpb.TestService_ServiceDesc.Streams[0], method,
		grpc.OnFinish(func(error) { finished.Add(1) }))
	if err != nil {
		t.Fatalf("%+v: %v", d, err)
	}
	if d.cancel > 0 {
		defer time.AfterFunc(d.cancel, cancel).Stop()
	}
	var held []context.Context
	askHeaders := func() {
		for _, after := range d.headers {
			time.Sleep(after)
			md, err := st.Header()
			if err != nil {
				t.Errorf("%+v: Header: %v", d, err)
			}
			c.headers, c.times = append(c.headers, md.Get("is")), append(c.times, time.Since(began))
		}
	}
	askContexts := func() {
		for _, after := range d.contexts {
			time.Sleep(after)
			ctx := st.Context()
			if _, ok := peer.FromContext(ctx); !ok || ctx.Value(key{}) != "a value" {
				t.Errorf("%+v: a context without a peer, or without the caller's value", d)
			}
			child, cancel := context.WithCancel(ctx)
			t.Cleanup(cancel)
			mu.Lock()
			held = append(held, ctx, child)
			mu.Unlock()
		}
	}
	var group sync.WaitGroup
	group.Go(func() {
		time.Sleep(d.send)
		_ = st.SendMsg(&testpb.Request{Id: d.seed, Messages: 3}) // an error is Recv's to tell
		_ = st.CloseSend()
	})
	if !d.byOne {
		group.Go(askHeaders)
		group.Go(askContexts)
	}
	group.Go(func() {
		time.Sleep(d.receive)
		if d.byOne {
			askContexts()
			askHeaders()
		}
		for {
			reply := new(testpb.Reply)
			if err = st.RecvMsg(reply); err != nil {
				break
			}
			c.messages = append(c.messages, reply.Sequence)
			mu.Lock()
			for _, ctx := range held {
				if ctx.Err() != nil && d.cancel == 0 {
					t.Errorf("%+v: a context ended before the stream", d)
				}
				if p, _ := peer.FromContext(ctx); p.Addr.String() != cluster.Address(int(reply.Backend)) {
					t.Errorf("%+v: the peer is %v, but backend %d has answered", d, p, reply.Backend)
				}
			}
			mu.Unlock()
		}
		if c.trailer = st.Trailer().Get("end"); err != io.EOF {
			c.code = status.Code(err)
		}
	})
	group.Wait()
	synctest.Wait()
	for _, ctx := range held {
		if ctx.Err() == nil {
			t.Errorf("%+v: a context outlived the stream", d)
		}
	}
	if n := finished.Load(); n != 1 {
		t.Errorf("%+v: OnFinish ran %d times", d, n)
	}
	return c
}

// check compares the result of a hedged call with the result of the same call over plain gRPC. A
// call that is canceled ends anywhere on the way. Headers come no later, except that the failure of
// a primary may wait for a hedge, and Header for a message if it is told to.
func (d driven) check(t *testing.T, plain, hedged came) {
	if d.cancel > 0 && (plain.code == codes.Canceled || hedged.code == codes.Canceled) {
		if n := min(len(plain.messages), len(hedged.messages)); !slices.Equal(plain.messages[:n], hedged.messages[:n]) {
			t.Errorf("%+v:\n%+v, plain %+v", d, hedged, plain)
		}
		return
	}
	if !slices.Equal(plain.messages, hedged.messages) || plain.code != hedged.code ||
		!slices.Equal(plain.trailer, hedged.trailer) ||
		!slices.EqualFunc(plain.headers, hedged.headers, slices.Equal) {
		t.Errorf("%+v:\n%+v, plain %+v", d, hedged, plain)
	}
	for i, at := range hedged.times {
		if at > plain.times[i] && !d.waits && d.plans[0].Code != codes.Unavailable {
			t.Errorf("%+v:\n%+v comes later than plain %+v", d, hedged, plain)
		}
	}
}

// TestSchedules drives streams from two, three and four goroutines at once, by random schedules of
// every method of grpc.ClientStream, with hedges due at random times. No call hangs, no goroutine
// is left, and the result is plain gRPC's.
func TestSchedules(t *testing.T) {
	const perBubble = 50
	var total stats.Counts
	count := model.Each(t, model.Counts{Short: 100, Long: 500}, perBubble, func(t *testing.T) func(*testing.T, uint64) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Backends: 2})
		var scheduler *hedge.Scheduler // of the schedule being played
		plain, conn := cluster.ClientT(t), cluster.ClientT(t,
			grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
				streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				return stream.Interceptor(scheduler)(ctx, desc, cc, method, streamer, opts...)
			}))
		testserver.ConnectT(t, plain)
		testserver.ConnectT(t, conn)
		return func(t *testing.T, seed uint64) {
			d := drawDriven(seed)
			options := []hedge.Option{hedge.WithMinDelay(0)}
			if d.waits {
				options = append(options, hedge.WithWaitForMessage(method))
			}
			cluster.SetScript(testserver.ByNumber(d.plans...))
			want := d.play(t, cluster, plain)
			scheduler = hedgetest.Fixed(t, d.delay, options...)
			d.check(t, want, d.play(t, cluster, conn))
			if got := cluster.Counts(); got.InFlight != 0 {
				t.Errorf("%+v: attempts are in flight after the call: %+v", d, got)
			}
			stats := scheduler.Stats()
			total.HedgeWins += stats.HedgeWins
			total.EarlyHeaders += stats.EarlyHeaders
		}
	})
	if count >= 500 && (total.HedgeWins == 0 || total.EarlyHeaders == 0) {
		t.Errorf("no hedge won, or no headers were early, so the schedules test little: %+v", total)
	}
}
