package shed_test

import (
	"context"
	"slices"
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
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/runqueue"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/shed"
	"github.com/grpchedge/hedge/stream"
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

// start returns a client, without any hedging of its own, of a server that sheds as b says, and
// what arrives there.
func start(t *testing.T, b *shed.Bound, script testserver.Script, options ...grpc.DialOption) (testpb.TestServiceClient, *arrivals) {
	t.Helper()
	a := &arrivals{}
	conn := testserver.StartT(t, testserver.Config{InMemory: true, Script: script, ServerOptions: []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(a.unary, b.Unary), grpc.ChainStreamInterceptor(a.stream, b.Stream),
	}}).ClientT(t, options...)
	testserver.ConnectT(t, conn)
	return testpb.NewTestServiceClient(conn), a
}

func after(delay time.Duration) testserver.Script {
	return func(testserver.Attempt) testserver.Plan { return testserver.Plan{Delay: delay} }
}

// aHedge is the context of a hedge as it arrives.
func aHedge() context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.Pairs("grpc-previous-rpc-attempts", "1", "hedge-primary-in-flight", "1"))
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

// TestNew_Busy has a hedge arrive under each sign that the server is busy.
func TestNew_Busy(t *testing.T) {
	defer waiting.Store(0)
	for _, tc := range []struct {
		name string
		wait time.Duration
		opts []shed.Option
		shed bool
	}{
		{"idle", 0, nil, false},
		{"goroutines wait for 1 ms", ms, nil, false},
		{"for longer", ms + 1, nil, true},
		{"WithBusy: idle", 0, []shed.Option{shed.WithBusy(func() bool { return false })}, false},
		{"WithBusy: busy", 0, []shed.Option{shed.WithBusy(func() bool { return true })}, true},
		{"WithBusy: goroutines wait", 2 * ms, []shed.Option{shed.WithBusy(func() bool { return false })}, true},
		{"WithMaxHedges: room", 0, []shed.Option{shed.WithMaxHedges(1)}, false},
		{"WithMaxHedges: none", 0, []shed.Option{shed.WithMaxHedges(0)}, true},
	} {
		b, err := shed.New(tc.opts...)
		if err != nil {
			t.Fatal(err)
		}
		waiting.Store(int64(tc.wait))
		served := false
		_, _ = b.Unary(aHedge(), nil, nil, func(context.Context, any) (any, error) {
			served = true
			return nil, nil
		})
		if served == tc.shed {
			t.Errorf("%s: turned away %t", tc.name, !tc.shed)
		}
	}
}

// TestBound sends primaries and hedges one by one, while those before are in flight.
func TestBound(t *testing.T) {
	attempt := func(n string) context.Context {
		ctx := context.Background()
		if n != "0" {
			ctx = metadata.AppendToOutgoingContext(ctx, "grpc-previous-rpc-attempts", strings.TrimPrefix(n, "retry "))
		}
		if n != "0" && !strings.HasPrefix(n, "retry") {
			ctx = metadata.AppendToOutgoingContext(ctx, "hedge-primary-in-flight", "1")
		}
		return ctx
	}
	for _, way := range []string{"unary", "stream"} {
		for _, tc := range []struct {
			name     string
			bound    int
			attempts []string
			shed     []int // their indexes
		}{
			{"within the bound", 2, []string{"1", "0", "2", "0"}, nil},
			{"above it", 2, []string{"1", "2", "1", "4"}, []int{2, 3}},
			{"a primary is never shed", 0, []string{"0", "0", "1", "0"}, []int{2}},
			{"nor does it count", 1, []string{"0", "0", "1", "0"}, nil},
			{"nonsense is a primary", 0, []string{"x", "-1"}, nil},
			{"retries are neither shed nor counted", 1, []string{"retry 1", "retry 2", "1", "retry 1", "2"}, []int{4}},
		} {
			t.Run(way+", "+tc.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBound(t, tc.bound)
					client, _ := start(t, b, after(time.Second))
					for range 2 { // the second time nothing is left of the first
						errs, trailers := make([]error, len(tc.attempts)), make([]metadata.MD, len(tc.attempts))
						var calls sync.WaitGroup
						for i, n := range tc.attempts {
							calls.Go(func() { errs[i] = ways[way](attempt(n), nil, client, grpc.Trailer(&trailers[i])) })
							synctest.Wait()
						}
						calls.Wait()
						for i, err := range errs {
							want, pushback := codes.OK, ""
							if slices.Contains(tc.shed, i) {
								want, pushback = codes.ResourceExhausted, "0"
							}
							if got := strings.Join(trailers[i].Get("grpc-retry-pushback-ms"), ","); status.Code(err) != want || got != pushback {
								t.Errorf("attempt %d: %v, pushback %q; want %v, %q", i, err, got, want, pushback)
							}
						}
						if b.InFlight() != 0 {
							t.Errorf("%d in flight", b.InFlight())
						}
					}
					if got := b.Shed(); got != int64(2*len(tc.shed)) {
						t.Errorf("%d shed", got)
					}
				})
			})
		}
	}
}

// TestBound_TheCallGoesOn lets both interceptors of this library meet a server that turns all
// hedges away. Four hedges of each call are sent at once, as nothing says yet that the client has
// one connection. The primary answers.
func TestBound_TheCallGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBound(t, 0)
		s := hedgetest.All(t, hedge.WithWarmup(1000, 10*ms), hedge.WithBudgetPercent(400), hedge.WithMaxHedges(4))
		client, _ := start(t, b, after(100*ms),
			grpc.WithUnaryInterceptor(interceptor.Unary(s)), grpc.WithStreamInterceptor(stream.Interceptor(s)))
		if reply, err := client.Unary(t.Context(), &testpb.Request{}); err != nil || reply.Attempt != 0 {
			t.Errorf("%v, %v", reply, err)
		}
		st, err := client.ServerStream(t.Context(), &testpb.Request{Messages: 1})
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := st.Recv(); err != nil || reply.Attempt != 0 {
			t.Errorf("%v, %v", reply, err)
		}
		if got := s.Stats(); got.Hedges != 8 || got.PushedBack != 8 || b.Shed() != 8 || got.PrimaryWins != 0 {
			t.Errorf("%+v, %d shed", got, b.Shed())
		}
	})
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

// TestBound_TheLastHopeIsServed has every fifth call fail once. What is sent then is the only
// attempt of its call in flight. No more calls fail than without the bound: none.
func TestBound_TheLastHopeIsServed(t *testing.T) {
	const name = `"name": [{"service": "hedgetest.TestService"}]`
	for kind, options := range map[string]func(*testing.T) []grpc.DialOption{
		"retries of a client that knows nothing of hedging": func(*testing.T) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithDefaultServiceConfig(`{"methodConfig": [{` + name + `, "retryPolicy": {"maxAttempts": 3,
				"initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`)}
		},
		"hedges after a failure": func(t *testing.T) []grpc.DialOption {
			return hedgetest.Interceptors(hedgetest.New(t, hedge.WithBudgetPercent(400), hedge.WithServiceConfig(`{"methodConfig": [{`+name+`, "hedgingPolicy": {"maxAttempts": 2,
				"hedgingDelay": "1s", "nonFatalStatusCodes": ["UNAVAILABLE"]}}]}`)))
		},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBound(t, 0)
				client, _ := start(t, b, func(a testserver.Attempt) testserver.Plan {
					if a.ID%5 == 0 && a.Number == 0 {
						return testserver.Plan{Code: codes.Unavailable}
					}
					return testserver.Plan{}
				}, options(t)...)
				failed := 0
				for id := range uint64(500) {
					if _, err := client.Unary(t.Context(), &testpb.Request{Id: id}); err != nil {
						failed++
					}
				}
				if failed > 0 || b.Shed() > 0 {
					t.Errorf("%d of 500 calls fail, %d attempts were turned away", failed, b.Shed())
				}
			})
		})
	}
}

// TestBound_AStreamThatSpeaksHasWon: a stream holds its place until its first message, however long
// it goes on.
func TestBound_AStreamThatSpeaksHasWon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, later = 4, 20
		b := newBound(t, bound)
		client, _ := start(t, b, func(a testserver.Attempt) testserver.Plan {
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
			t.Errorf("%d of %d streams wait for their primary, %d places are taken, %d hedges were turned away", slow, bound+later, b.InFlight(), b.Shed())
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
