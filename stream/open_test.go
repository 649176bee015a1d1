package stream_test

import (
	"context"
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
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
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
