package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stream"
)

// openScenes are streams that stay open: decided or not, with hedges or not.
var openScenes = []struct {
	name      string
	options   []hedge.Option
	plans     []testserver.Plan // by number of the attempt
	header    bool              // the caller asks for Header first
	undecided bool              // Recv is still waiting
	unasked   bool              // neither Header nor Recv is called
	unhedged  bool              // the requests are the caller's
}{
	{name: "the primary answers at once", plans: stayOpen(0)},
	{name: "the primary wins", plans: stayOpen(35*ms, time.Hour, time.Hour, time.Hour)},
	{name: "the third hedge wins", plans: stayOpen(time.Hour, time.Hour, time.Hour, 5*ms)},
	{name: "headers decide", plans: earlyHeaders(0), header: true},
	{name: "headers of the third hedge decide", header: true,
		plans: append(stayOpen(time.Hour, time.Hour, time.Hour), earlyHeaders(5*ms)...)},
	{name: "Header waits for the message", options: []hedge.Option{hedge.WithWaitForMessage("/*/*")}, header: true,
		plans: stayOpen(time.Hour, time.Hour, time.Hour, 5*ms)},
	{name: "a hedgingPolicy", options: []hedge.Option{policy}, plans: stayOpen(time.Hour, time.Hour, 5*ms)},
	{name: "a dry run", options: []hedge.Option{hedge.WithDryRun(true)}, plans: stayOpen(0), unhedged: true},
	{name: "not selected", options: []hedge.Option{hedge.WithMethods("/a/b")}, plans: stayOpen(0), unhedged: true},
	{name: "undecided", plans: stayOpen(time.Hour, time.Hour, time.Hour, time.Hour), undecided: true},
	{name: "nobody receives", plans: stayOpen(0), unasked: true},
}

// stayOpen returns the plans of attempts that send one message after each delay and then nothing.
func stayOpen(delays ...time.Duration) (plans []testserver.Plan) {
	for _, d := range delays {
		plans = append(plans, testserver.Plan{Delay: d, Messages: 1, After: 1, Ending: testserver.Hang})
	}
	return plans
}

func earlyHeaders(delay time.Duration) []testserver.Plan {
	plans := stayOpen(delay)
	plans[0].HeaderAtOnce = true
	return plans
}

// watch has weak pointers to all that a stream might keep, by kind.
type watch struct {
	mu   sync.Mutex
	kept map[string][]func() bool
}

// see watches a value.
func see[T any](w *watch, what string, v *T) {
	p := weak.Make(v)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept[what] = append(w.kept[what], func() bool { return p.Value() != nil })
}

// count returns how many values of a kind are reachable.
func (w *watch) count(what string) (n int) {
	for _, isKept := range w.kept[what] {
		if isKept() {
			n++
		}
	}
	return n
}

// watched sees the messages of every attempt. gRPC, which keeps a request until it has headers, gets
// a copy.
type watched struct {
	grpc.ClientStream
	w *watch
}

func (s *watched) SendMsg(m any) error {
	see(s.w, "requests", m.(*testpb.Request))
	return s.ClientStream.SendMsg(proto.Clone(m.(*testpb.Request)))
}

func (s *watched) RecvMsg(m any) error {
	if reply, ok := m.(*testpb.Reply); ok {
		see(s.w, "first messages", reply)
	}
	return s.ClientStream.RecvMsg(m)
}

type valueKey struct{}

// TestRule08_WhatOpenStreamsKeep: streams that stay open keep no message, request, context or option
// beside what plain gRPC keeps, and no loser's stream. Other calls come between them.
func TestRule08_WhatOpenStreamsKeep(t *testing.T) {
	const streams, between = 4, 7
	for _, tc := range openScenes {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			w := &watch{kept: map[string][]func() bool{}}
			inner := inside(func(_ *grpc.ClientConn, open opener) (grpc.ClientStream, error) {
				st, err := open()
				s := &watched{st, w}
				see(w, "streams of attempts", s)
				return s, err
			})
			script := func(a testserver.Attempt) testserver.Plan {
				if a.ID >= 1000 {
					return testserver.Plan{}
				}
				return tc.plans[a.Number]
			}
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: script})
			s := hedgetest.Fixed(t, 10*ms, append([]hedge.Option{hedge.WithMaxHedges(3)}, tc.options...)...)
			client := dial(t, cluster, s, inner)
			var open []grpc.ServerStreamingClient[testpb.Reply]
			for n := range streams {
				open = append(open, openAndForget(t, client, uint64(n), tc.header, tc.unasked, tc.undecided))
				for k := range between {
					callAndForget(t, client, w, uint64(1000+n*between+k))
				}
			}
			time.Sleep(time.Second) // until every hedge is sent
			synctest.Wait()
			runtime.GC()
			runtime.GC()
			for _, what := range slices.Sorted(maps.Keys(w.kept)) {
				kept, most := w.count(what), 0
				if what == "streams of attempts" {
					most = streams // the winners
				}
				if tc.undecided && (what == "first messages" || what == "streams of attempts") {
					most = streams * len(tc.plans) // each attempt is receiving
				}
				if kept > most {
					t.Errorf("%d open streams keep %d of %d %s", streams, kept, len(w.kept[what]), what)
				}
			}
			runtime.KeepAlive(open)
		})
	}
}

// TestRule08_WhatAnOpenStreamTakes compares the memory of small streams that stay open, client plus
// server, with plain ones of the same run. The heap per stream varies by 0.02 of plain.
// A stream that also kept the report of its race would take 0.1 more, and one that kept the stream of a
// primary that has lost 0.4 more: each bound is below that.
func TestRule08_WhatAnOpenStreamTakes(t *testing.T) {
	var plain float64
	for _, tc := range []struct {
		name           string
		hedges, winner int
		most           float64 // of a plain stream; 0 is any
	}{
		{name: "warm-up", hedges: 3, winner: 3}, // later rows reuse its goroutines, which the heap keeps
		{name: "plain", most: 1},
		{name: "the primary answers at once", hedges: 3, most: 1.35},
		{name: "the primary wins against one", hedges: 1, most: 1.45},
		{name: "the primary wins against three", hedges: 3, most: 1.45},
		{name: "the only hedge wins", hedges: 1, winner: 1, most: 1.8},
		{name: "the third hedge wins", hedges: 3, winner: 3, most: 1.8},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			takes := openTakes(t, tc.hedges, tc.winner, strings.Contains(tc.name, "against"))
			if tc.hedges == 0 {
				plain = takes
			}
			if most := tc.most * plain; most > 0 && takes > most {
				t.Errorf("an open stream takes %.0f bytes (%.2f of plain), want %.0f at most", takes, takes/plain, most)
			}
		})
	}
}

// openTakes returns the memory of an open stream that attempt winner has decided, in bytes. If late is
// set, the winner answers after the last hedge was sent. A cluster would keep a record of each attempt.
func openTakes(t *testing.T, hedges, winner int, late bool) float64 {
	const streams = 400
	s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(max(hedges, 1)))
	if hedges == 0 {
		s = nil
	}
	conn := testserver.HandlerT(t, func(_ any, st grpc.ServerStream) error {
		if n := rpc.PreviousAttempts(st.Context()); n == winner {
			if late {
				time.Sleep(time.Duration(hedges)*10*ms + 5*ms)
			}
			_ = st.SendMsg(&testpb.Reply{})
		}
		<-st.Context().Done()
		return nil
	}, hedging(s))
	var open []grpc.ServerStreamingClient[testpb.Reply]
	hold := func() uint64 {
		for range streams {
			open = append(open, openAndForget(t, testpb.NewTestServiceClient(conn), 0, false, false, false))
		}
		synctest.Wait()
		return testserver.Heap()
	}
	before := hold() // with what all streams share
	after := hold()
	runtime.KeepAlive(open)
	return float64(after-before) / streams
}

// openAndForget opens a stream, and receives its first message if the scene has a receiver.
func openAndForget(t *testing.T, client testpb.TestServiceClient, id uint64, header, unasked, undecided bool,
) grpc.ServerStreamingClient[testpb.Reply] {
	st := open(t.Context(), t, client, &testpb.Request{Id: id, Payload: make([]byte, 1000)})
	switch {
	case unasked:
		return st
	case undecided:
		go func() { _, _ = st.Recv() }()
		return st
	case header:
		if _, err := st.Header(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := st.Recv(); err != nil {
		t.Fatal(err)
	}
	return st
}

// callAndForget makes a unary call and a stream that end, and watches their contexts and options.
func callAndForget(t *testing.T, client testpb.TestServiceClient, w *watch, id uint64) {
	value, header := new([64]byte), new(metadata.MD)
	see(w, "contexts of other calls", value)
	see(w, "options of other calls", header)
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, value))
	defer cancel()
	req := &testpb.Request{Id: id, Messages: 1}
	if _, err := client.Unary(ctx, req, grpc.Header(header)); err != nil {
		t.Fatal(err)
	}
	if messages, _, err := receive(open(ctx, t, client, req, grpc.Header(header)), req); messages != 1 || err != nil {
		t.Fatal(messages, err)
	}
}

// TestRule17_ADecidedStreamKeepsNoRequest has headers decide each stream while its request is being
// sent.
func TestRule17_ADecidedStreamKeepsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams, size = 50, 60_000
		gate := make(chan struct{})
		inner := inside(func(_ *grpc.ClientConn, open opener) (grpc.ClientStream, error) {
			st, err := open()
			return gated{st, gate}, err
		})
		conn := testserver.HandlerT(t, func(_ any, st grpc.ServerStream) error {
			_ = st.SendHeader(nil)
			<-st.Context().Done()
			return nil
		}, hedging(hedgetest.Fixed(t, time.Hour)), inner)
		before := testserver.Heap()
		var open []grpc.ClientStream
		for range streams {
			st, err := conn.NewStream(t.Context(), &testpb.TestService_ServiceDesc.Streams[0], method)
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = st.SendMsg(&testpb.Request{Payload: make([]byte, size)}) }()
			synctest.Wait()
			if _, err := st.Header(); err != nil {
				t.Fatal(err)
			}
			open = append(open, st)
			gate <- struct{}{}
		}
		synctest.Wait()
		if kept := (testserver.Heap() - before) / streams; kept > size/2 {
			t.Errorf("an open stream takes %d bytes, and its request %d", kept, size)
		}
		runtime.KeepAlive(open)
	})
}

// gated sends no message before the gate lets it pass.
type gated struct {
	grpc.ClientStream
	gate chan struct{}
}

func (g gated) SendMsg(any) error {
	<-g.gate
	return nil
}

// TestRule08_AbandonedStreams ends streams in ways that no Recv reports. OnFinish runs once, and no
// attempt is left.
func TestRule08_AbandonedStreams(t *testing.T) {
	for _, tc := range []struct {
		does string // the caller, step by step
		code codes.Code
	}{
		{"sends too much", codes.ResourceExhausted},
		{"cancels", codes.Canceled},
		{"sends, cancels, receives", codes.Canceled},
		{"sends, waits, cancels", codes.Canceled},
		{"sends, asks for headers, cancels", codes.Canceled},
		{"sends, closes the connection", codes.Canceled},
		{"sends, closes the connection soon, receives", codes.Canceled},
		{"sends, sends", codes.Internal},
	} {
		for _, delay := range []time.Duration{0, 10 * ms} {
			hedgetest.Run(t, fmt.Sprintf("%s,delay=%v", tc.does, delay), func(t *testing.T) {
				cluster, conn := wired(t, hedgetest.FixedOrPlain(t, delay, hedge.WithMaxHedges(1)),
					testserver.Plan{HeaderAtOnce: true, Ending: testserver.Hang}, testserver.Plan{Ending: testserver.Hang})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var finished []codes.Code
				st, err := conn.NewStream(ctx, &testpb.TestService_ServiceDesc.Streams[0], method,
					grpc.MaxCallSendMsgSize(10), grpc.OnFinish(func(err error) { finished = append(finished, status.Code(err)) }))
				if err != nil {
					t.Fatal(err)
				}
				for _, step := range strings.Split(tc.does, ", ") {
					switch step {
					case "sends":
						_ = errors.Join(st.SendMsg(&testpb.Request{Id: 1}), st.CloseSend())
					case "sends too much":
						_ = st.SendMsg(&testpb.Request{Payload: make([]byte, 100)})
					case "waits":
						time.Sleep(time.Second)
					case "asks for headers":
						_, _ = st.Header()
					case "receives":
						_ = st.RecvMsg(new(testpb.Reply))
					case "cancels":
						cancel()
						synctest.Wait()
					case "closes the connection":
						_ = conn.Close()
					case "closes the connection soon":
						time.AfterFunc(100*ms, func() { _ = conn.Close() })
					}
				}
				synctest.Wait()
				if !slices.Equal(finished, []codes.Code{tc.code}) {
					t.Errorf("OnFinish ran with %v, want %v", finished, tc.code)
				}
				cancel()
				synctest.Wait()
				if got := cluster.Counts(); got.InFlight != 0 || len(finished) != 1 {
					t.Errorf("%+v, OnFinish ran with %v", got, finished)
				}
			})
		}
	}
}

func TestOnFinish_OfAStreamThatCouldNotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := testserver.StartT(t, testserver.Config{InMemory: true})
		conn := cluster.ClientT(t, hedging(hedgetest.New(t, policy)))
		cluster.Stop(0)
		ctx, cancel := context.WithCancel(t.Context())
		var finished []codes.Code
		_, err := testpb.NewTestServiceClient(conn).ServerStream(ctx, &testpb.Request{}, grpc.OnFinish(func(err error) {
			finished = append(finished, status.Code(err))
		}))
		if err != nil || len(finished) > 0 {
			t.Fatalf("%v, OnFinish ran with %v: hedges cannot save this stream", err, finished)
		}
		cancel()
		synctest.Wait()
		if !slices.Equal(finished, []codes.Code{codes.Unavailable}) {
			t.Errorf("OnFinish ran with %v", finished)
		}
	})
}

// TestRule08_AConnectionThatIsClosedAsAStreamOpens is for the race detector: gRPC ends the stream
// on another goroutine, before the interceptor has it.
func TestRule08_AConnectionThatIsClosedAsAStreamOpens(t *testing.T) {
	for n, name := range []string{"primary", "hedge"} {
		hedgetest.Run(t, name, func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: testserver.ByNumber(slow(), slow())})
			opened := 0
			closing := inside(func(cc *grpc.ClientConn, open opener) (grpc.ClientStream, error) {
				st, err := open()
				if opened++; opened == n+1 {
					_ = cc.Close()
					time.Sleep(ms)
				}
				return st, err
			})
			client := dial(t, cluster, hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), closing)
			var header metadata.MD
			st, err := client.ServerStream(t.Context(), &testpb.Request{}, grpc.Header(&header))
			if err == nil {
				_, err = st.Recv()
			}
			if err == nil || st != nil && st.Context().Err() == nil {
				t.Errorf("%v although the connection is closed", err)
			}
		})
	}
}

// TestRule04_ContextBeforeTheFirstMessage: the context of a stream without a waiting RecvMsg has
// the deadline of the service config, and ends by it, or with the stream, as with plain gRPC.
func TestRule04_ContextBeforeTheFirstMessage(t *testing.T) {
	timeout := grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "timeout": "0.2s"}]}`)
	for _, delay := range []time.Duration{0, time.Hour, 10 * ms} {
		hedgetest.Run(t, delay.String(), func(t *testing.T) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true,
				Script: func(a testserver.Attempt) testserver.Plan {
					if a.ID == 0 {
						return slow()
					}
					return delivers(time.Duration(20-20*a.Number) * ms)
				}})
			s := hedgetest.FixedOrPlain(t, delay, hedge.WithMaxHedges(1))
			client, began := dial(t, cluster, s, timeout), time.Now()
			ctx := open(t.Context(), t, client, &testpb.Request{}).Context()
			child, cancel := context.WithTimeout(context.WithValue(ctx, t, 0), time.Hour)
			defer cancel()
			deadline, _ := ctx.Deadline()
			if <-child.Done(); !deadline.Equal(began.Add(200*ms)) || time.Since(began) != 200*ms ||
				ctx.Err() != context.DeadlineExceeded || child.Err() != ctx.Err() || context.Cause(child) != ctx.Err() {
				t.Errorf("ends after %v by %v, its child by %v; deadline %v", time.Since(began), ctx.Err(), child.Err(), deadline)
			}
			st := open(t.Context(), t, client, &testpb.Request{Id: 1, Messages: 1})
			ctx = st.Context()
			_, err := st.Recv()
			alive := ctx.Err()
			if _, end := st.Recv(); err != nil || alive != nil || end != io.EOF || ctx.Err() != context.Canceled {
				t.Errorf("%v, %v; then %v, %v", err, alive, end, ctx.Err())
			}
			ctx, cancel = context.WithTimeout(t.Context(), 100*ms)
			defer cancel()
			began = time.Now()
			if <-open(ctx, t, client, &testpb.Request{}).Context().Done(); time.Since(began) != 100*ms {
				t.Errorf("ends %v after a caller whose deadline is 100 ms", time.Since(began))
			}
		})
	}
}

// TestRule04_ContextOutlivesALoser: the context of a stream lives as long as the stream, even if the
// connection of another attempt is closed: of a hedge that has not answered, or of the primary.
func TestRule04_ContextOutlivesALoser(t *testing.T) {
	three := testserver.Plan{Delay: 50 * ms, Messages: 3, Interval: 10 * ms, After: 3, Ending: testserver.Hang}
	hangs := testserver.Plan{Ending: testserver.Hang}
	for _, tc := range []struct {
		name        string
		here, there testserver.Plan
		closesHere  bool
	}{
		{"of the hedge", three, hangs, false},
		{"of the primary", hangs, three, true},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			start := func(p testserver.Plan) *testserver.Cluster {
				return testserver.StartT(t, testserver.Config{InMemory: true,
					Script: func(testserver.Attempt) testserver.Plan { return p }})
			}
			far := start(tc.there).ClientT(t)
			near := start(tc.here).ClientT(t, grpc.WithStreamInterceptor(stream.Interceptor(
				hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), far)))
			testserver.ConnectT(t, far)
			testserver.ConnectT(t, near)
			st := open(t.Context(), t, testpb.NewTestServiceClient(near), &testpb.Request{})
			ctx, closed := st.Context(), far
			if tc.closesHere {
				closed = near
			}
			time.AfterFunc(30*ms, func() { _ = closed.Close() })
			for range 3 {
				if _, err := st.Recv(); err != nil || ctx.Err() != nil {
					t.Fatalf("%v under a context with %v", err, ctx.Err())
				}
			}
			_ = errors.Join(near.Close(), far.Close())
			synctest.Wait()
			if ctx.Err() == nil {
				t.Error("the stream has ended, and its context has not")
			}
		})
	}
}
