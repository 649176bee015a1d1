package shed_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/runqueue"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/shed"
)

const ms = time.Millisecond

func TestMain(m *testing.M) {
	runqueue.Replace(func() time.Duration { return time.Duration(waiting.Load()) }) // whatever else the machine does
	goleak.VerifyTestMain(m)
}

// waiting is how long goroutines wait for a processor.
var waiting atomic.Int64

func newBound(t *testing.T, hedges int) *shed.Bound {
	t.Helper()
	b, err := shed.New(shed.WithMaxHedges(hedges))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// start returns a client, without any hedging of its own, of a server that sheds as b says.
func start(t *testing.T, b *shed.Bound, script testserver.Script, options ...grpc.DialOption) testpb.TestServiceClient {
	t.Helper()
	conn := testserver.StartT(t, testserver.Config{InMemory: true, Script: script, ServerOptions: []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(b.Unary), grpc.ChainStreamInterceptor(b.Stream),
	}}).ClientT(t, options...)
	testserver.ConnectT(t, conn)
	return testpb.NewTestServiceClient(conn)
}

func after(delay time.Duration) testserver.Script {
	return func(testserver.Attempt) testserver.Plan { return testserver.Plan{Delay: delay} }
}

// aHedge is the context of a hedge as it arrives.
func aHedge() context.Context {
	return metadata.NewIncomingContext(context.Background(),
		metadata.Pairs("grpc-previous-rpc-attempts", "1", "hedge-primary-in-flight", "1"))
}

// BenchmarkServe measures the cost of calls over one connection, for client and server together: of a
// call that is served, and of a hedge that is turned away.
func BenchmarkServe(b *testing.B) {
	bound, err := shed.New(shed.WithMaxHedges(0))
	if err != nil {
		b.Fatal(err)
	}
	client := testpb.NewTestServiceClient(testserver.StartT(b, testserver.Config{CountsOnly: true,
		ServerOptions: []grpc.ServerOption{grpc.UnaryInterceptor(bound.Unary)}}).ClientT(b))
	hedged, _ := metadata.FromIncomingContext(aHedge())
	for name, ctx := range map[string]context.Context{
		"empty call": b.Context(), "turned away": metadata.NewOutgoingContext(b.Context(), hedged),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _ = client.Unary(ctx, &testpb.Request{})
			}
		})
	}
}

func TestNew_Errors(t *testing.T) {
	for want, o := range map[string]shed.Option{
		"hedge: shed.WithMaxHedges(-1): ":  shed.WithMaxHedges(-1),
		"hedge: shed.WithBusy(nil): ":      shed.WithBusy(nil),
		"hedge: shed.New: option 1 is nil": nil,
	} {
		if b, err := shed.New(o); b != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, %v, want %s", b, err, want)
		}
	}
}

// TestNew_Busy has a hedge arrive under each sign that the server is busy, after another handler has
// returned, of a primary or of a hedge. If that was a moment ago, a tenth of the wait is a sign
// that the hedge waited for that handler.
func TestNew_Busy(t *testing.T) {
	defer waiting.Store(0)
	busy := func(is bool) []shed.Option { return []shed.Option{shed.WithBusy(func() bool { return is })} }
	for _, tc := range []struct {
		name      string
		wait, ago time.Duration
		opts      []shed.Option
		shed      bool
	}{
		{name: "idle", ago: ms},
		{name: "goroutines wait for 1 ms", wait: ms, ago: ms},
		{name: "for longer", wait: ms + 1, ago: ms, shed: true},
		{name: "for 0.1 ms as a handler returns", wait: ms / 10},
		{name: "for longer as a handler returns", wait: ms/10 + 1, ago: ms/5 - 1, shed: true},
		{name: "for longer, and a handler returned 0.2 ms ago", wait: ms/10 + 1, ago: ms / 5},
		{name: "WithBusy: idle", ago: ms, opts: busy(false)},
		{name: "WithBusy: busy", ago: ms, opts: busy(true), shed: true},
		{name: "WithBusy: goroutines wait", wait: 2 * ms, ago: ms, opts: busy(false), shed: true},
		{name: "WithMaxHedges: room", ago: ms, opts: []shed.Option{shed.WithMaxHedges(1)}},
		{name: "WithMaxHedges: none", ago: ms, opts: []shed.Option{shed.WithMaxHedges(0)}, shed: true},
	} {
		for first, ctx := range map[string]context.Context{"primary": context.Background(), "hedge": aHedge()} {
			hedgetest.Run(t, tc.name+", after a "+first, func(t *testing.T) {
				b, err := shed.New(tc.opts...)
				if err != nil {
					t.Fatal(err)
				}
				served := 0
				handler := func(context.Context, any) (any, error) { served++; return nil, nil }
				time.Sleep(ms) // no handler has returned yet, whenever the process began
				waiting.Store(0)
				_, _ = b.Unary(ctx, nil, nil, handler)
				time.Sleep(tc.ago)
				waiting.Store(int64(tc.wait))
				before := served
				if _, _ = b.Unary(aHedge(), nil, nil, handler); served == before != tc.shed {
					t.Errorf("turned away: %t", served == before)
				}
			})
		}
	}
}

// TestBound_CanceledWhileWaiting has a primary and a hedge arrive that are canceled: their calls may
// have waited for a processor. No handler is called.
func TestBound_CanceledWhileWaiting(t *testing.T) {
	for _, ctx := range []context.Context{context.Background(), aHedge()} {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		b := newBound(t, 1)
		_, unary := b.Unary(ctx, nil, nil, nil)
		streamed := b.Stream(nil, canceled{ctx: ctx}, nil, nil)
		if status.Code(unary) != codes.Canceled || status.Code(streamed) != codes.Canceled || b.Shed() != 0 {
			t.Errorf("%v, %v, %d turned away", unary, streamed, b.Shed())
		}
	}
}

// canceled is a stream of a canceled call.
type canceled struct {
	grpc.ServerStream
	ctx context.Context
}

func (c canceled) Context() context.Context { return c.ctx }

// TestBound sends primaries and hedges one by one, while earlier ones are in flight, twice. p is a
// primary, h a hedge, H a hedge that is turned away, r a retry, e and 0 a retry through a
// proxy that gives each call the mark of hedges, and x a call with invalid metadata.
func TestBound(t *testing.T) {
	marks := map[rune][]string{
		'h': {"grpc-previous-rpc-attempts", "1", "hedge-primary-in-flight", "1"},
		'H': {"grpc-previous-rpc-attempts", "2", "hedge-primary-in-flight", "1"},
		'r': {"grpc-previous-rpc-attempts", "1"},
		'x': {"grpc-previous-rpc-attempts", "x", "hedge-primary-in-flight", "1"},
		'e': {"grpc-previous-rpc-attempts", "1", "hedge-primary-in-flight", ""},
		'0': {"grpc-previous-rpc-attempts", "1", "hedge-primary-in-flight", "0"},
	}
	for _, tc := range []struct {
		attempts string
		bound    int
	}{
		{"hphp", 2}, {"hhHH", 2}, {"ppHp", 0}, {"pphp", 1}, {"xx", 0}, {"e0", 0}, {"rrhrH", 1},
	} {
		for _, way := range []string{"unary", "stream"} {
			hedgetest.Run(t, way+", "+tc.attempts, func(t *testing.T) {
				b := newBound(t, tc.bound)
				client := start(t, b, after(time.Second))
				for range 2 {
					var calls sync.WaitGroup
					for i, kind := range tc.attempts {
						calls.Go(func() {
							var trailer metadata.MD
							err := ways[way](metadata.AppendToOutgoingContext(t.Context(), marks[kind]...), nil, client,
								grpc.Trailer(&trailer))
							want, pushback := codes.OK, ""
							if kind == 'H' {
								want, pushback = codes.ResourceExhausted, "0"
							}
							if got := strings.Join(trailer.Get("grpc-retry-pushback-ms"), ","); status.Code(err) != want || got != pushback {
								t.Errorf("attempt %d: %v, pushback %q; want %v, %q", i, err, got, want, pushback)
							}
						})
						synctest.Wait()
					}
					calls.Wait()
				}
				if b.InFlight() != 0 || b.Shed() != int64(2*strings.Count(tc.attempts, "H")) {
					t.Errorf("%d in flight, %d shed", b.InFlight(), b.Shed())
				}
			})
		}
	}
}

func TestBound_APanicIsCountedOut(t *testing.T) {
	b := newBound(t, 1)
	func() {
		defer func() { _ = recover() }()
		_, _ = b.Unary(aHedge(), nil, nil, func(context.Context, any) (any, error) { panic("in the handler") })
	}()
	if b.InFlight() != 0 {
		t.Errorf("%d in flight", b.InFlight())
	}
}

// TestBound_AStreamCountsUntilItsFirstMessage: a stream holds its place until its first message,
// however long it lasts.
func TestBound_AStreamCountsUntilItsFirstMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, later = 4, 20
		b := newBound(t, bound)
		client := start(t, b, func(a testserver.Attempt) testserver.Plan {
			if a.Number == 0 {
				return testserver.Plan{Delay: 5 * time.Second}
			}
			return testserver.Plan{Delay: ms, Interval: time.Hour}
		}, hedgetest.Interceptors(hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithBudgetPercent(400)))...)
		slow := 0
		for range bound + later {
			began := time.Now()
			st, err := client.ServerStream(t.Context(), &testpb.Request{Messages: 2})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := st.Recv(); err != nil || time.Since(began) > time.Second {
				slow++
			}
		}
		if slow > 0 || b.InFlight() != 0 || b.Shed() != 0 {
			t.Errorf("%d of %d streams wait for their primary, %d places are taken, %d hedges were turned away",
				slow, bound+later, b.InFlight(), b.Shed())
		}
	})
}

// TestBound_IsNeverExceeded: hedges that are turned away do not count, not even for a moment, in
// which others would be turned away too.
func TestBound_IsNeverExceeded(t *testing.T) {
	b := newBound(t, 1)
	ctx, most := aHedge(), 0
	_, _ = b.Unary(ctx, nil, nil, func(context.Context, any) (any, error) {
		var turnedAway sync.WaitGroup
		for range 4 {
			turnedAway.Go(func() {
				for range 2000 {
					_, _ = b.Unary(ctx, nil, nil, nil)
				}
			})
		}
		for b.Shed() < 8000 {
			most = max(most, b.InFlight())
		}
		turnedAway.Wait()
		return nil, nil
	})
	if most != 1 {
		t.Errorf("%d hedges in flight, want 1", most)
	}
}

// forwarded is the context of a gateway that serves a hedge and copies incoming metadata to its own
// calls.
func forwarded(ctx context.Context) context.Context {
	md := metadata.Pairs("tenant", "blue", "grpc-previous-rpc-attempts", "2", "hedge-primary-in-flight", "1")
	return metadata.NewOutgoingContext(metadata.NewIncomingContext(ctx, md), md)
}

// ways are the ways to make a call.
var ways = map[string]func(context.Context, *hedge.Scheduler, testpb.TestServiceClient, ...grpc.CallOption) error{
	"unary": func(ctx context.Context, _ *hedge.Scheduler, c testpb.TestServiceClient, opts ...grpc.CallOption) error {
		_, err := hedgetest.Unary(ctx, c, &testpb.Request{Id: 1}, opts...)
		return err
	},
	"stream": func(ctx context.Context, _ *hedge.Scheduler, c testpb.TestServiceClient, opts ...grpc.CallOption) error {
		_, err := hedgetest.Stream(ctx, c, &testpb.Request{Id: 1}, opts...)
		return err
	},
	"Do": func(ctx context.Context, s *hedge.Scheduler, c testpb.TestServiceClient, _ ...grpc.CallOption) error {
		_, err := hedge.Do(ctx, s, "do", "/do.Service/Method", func(ctx context.Context) (*testpb.Reply, error) {
			return c.UnaryIdempotent(ctx, &testpb.Request{Id: 1})
		})
		return err
	},
}

// TestForwardedNumber has a gateway pass on the number of the attempt that it serves, to a server
// that sheds every hedge.
func TestForwardedNumber(t *testing.T) {
	const primary = "0 [] [blue]"
	for _, tc := range []struct {
		name string
		opts []hedge.Option // nil: plain gRPC
		code codes.Code
	}{
		{"plain gRPC", nil, codes.ResourceExhausted},
		{"hedged", []hedge.Option{hedge.WithMaxHedges(2)}, codes.OK}, // not on behalf of a hedge
		{"watched", []hedge.Option{hedge.WithMaxHedges(0)}, codes.OK},
		{"throttled", []hedge.Option{hedge.WithMaxHedges(0), hedgetest.Throttle(10, 1)}, codes.OK},
		{"not selected", []hedge.Option{hedge.WithIdempotentOnly()}, codes.OK},
	} {
		for kind, call := range ways {
			if tc.opts == nil && kind == "Do" {
				continue
			}
			hedgetest.Run(t, tc.name+", "+kind, func(t *testing.T) {
				s := hedgetest.Fixed(t, 10*ms, tc.opts...)
				var dial []grpc.DialOption
				if tc.opts != nil && kind != "Do" {
					dial = hedgetest.Interceptors(s)
				}
				var seen atomic.Value
				client := start(t, newBound(t, 0), func(a testserver.Attempt) testserver.Plan {
					seen.CompareAndSwap(nil, fmt.Sprint(a.Number, a.Metadata.Get("hedge-primary-in-flight"), a.Metadata.Get("tenant")))
					return testserver.Plan{Delay: 100 * ms}
				}, dial...)
				began := time.Now()
				err := call(forwarded(t.Context()), s, client)
				if status.Code(err) != tc.code || err == nil && time.Since(began) != 100*ms {
					t.Errorf("%v after %v, want %v", err, time.Since(began), tc.code)
				}
				if got := seen.Load(); tc.code == codes.OK && got != primary {
					t.Errorf("the server saw %q, want %q", got, primary)
				}
			})
		}
	}
}

// TestForwardedNumber_WithinAHedge lets a hedge of Do make a call of its own, which is a further
// attempt in truth: a busy server may turn it away.
func TestForwardedNumber_WithinAHedge(t *testing.T) {
	hedgetest.Run(t, "", func(t *testing.T) {
		b := newBound(t, 0)
		client := start(t, b, after(50*ms), hedgetest.Interceptors(hedgetest.All(t, hedge.WithMaxHedges(0)))...)
		if err := ways["Do"](t.Context(), hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), client); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if b.Shed() != 1 {
			t.Errorf("%d attempts were turned away, want the hedge alone", b.Shed())
		}
	})
}
