package interceptor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// regions are two services. Calls to eu are hedged to us, whose connection is hedged too.
type regions struct {
	eu, us    *testserver.Cluster
	conn      *grpc.ClientConn // to eu
	scheduler *hedge.Scheduler
	mu        sync.Mutex
	sent      []stats.HedgeSent
}

// startRegions starts both services, with what happens to attempts there.
func startRegions(t *testing.T, eu, us plan, opts ...hedge.Option) *regions {
	r := &regions{}
	start := func(name string, p plan) *testserver.Cluster {
		p.Header, p.Trailer = metadata.Pairs("region", name), metadata.Join(p.Trailer, metadata.Pairs("region", name))
		return testserver.StartT(t, testserver.Config{Name: name, InMemory: true,
			Script: func(testserver.Attempt) plan { return p }})
	}
	r.eu, r.us = start("eu", eu), start("us", us)
	trace := hedge.WithTrace(&hedge.Trace{HedgeSent: func(e stats.HedgeSent) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sent = append(r.sent, e)
	}})
	r.scheduler = hedgetest.Fixed(t, 10*ms, append(opts, trace)...)
	far := r.us.ClientT(t, interceptor.DialOptions(r.scheduler)...)
	r.conn = r.eu.ClientT(t, interceptor.DialOptions(r.scheduler, interceptor.HedgeTo(far))...)
	r.conn.Connect()
	synctest.Wait()
	return r
}

func TestHedgeTo(t *testing.T) {
	failover := with{hedge.WithFailover()}
	down := plan{Code: codes.Unavailable}
	pushed := plan{Code: codes.Unavailable, Trailer: metadata.Pairs("grpc-retry-pushback-ms", "1000")}
	stalls, slow := plan{Ending: testserver.Hang}, plan{Delay: 35 * ms}
	for _, tc := range []struct {
		name   string
		eu, us plan
		opts   []hedge.Option
		from   string // the region that answers
		at     time.Duration
		code   codes.Code
		hedges int64
	}{
		{name: "eu answers", us: stalls, from: "eu"},
		{name: "eu stalls", eu: stalls, from: "us", at: 10 * ms, hedges: 1},
		{name: "us does not hedge the hedge", eu: stalls, us: slow, opts: with{hedge.WithMaxHedges(1)},
			from: "us", at: 45 * ms, hedges: 1},
		{name: "all hedges go to us", eu: stalls, us: slow, from: "us", at: 45 * ms, hedges: 2},
		{name: "eu fails", eu: down, opts: failover, from: "us", hedges: 1},
		{name: "eu pushes back, us does not", eu: pushed, opts: failover, from: "us", hedges: 1},
		{name: "us pushes back too", eu: pushed, us: pushed, opts: failover, from: "eu",
			code: codes.Unavailable, hedges: 1},
		{name: "both fail", eu: down, us: down, opts: failover, from: "eu", code: codes.Unavailable, hedges: 2},
	} {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			r := startRegions(t, tc.eu, tc.us, tc.opts...)
			ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "t1")
			var header, trailer metadata.MD
			var from peer.Peer
			began := time.Now()
			reply, err := callOver(ctx, d, testpb.NewTestServiceClient(r.conn), &testpb.Request{Id: 7, Messages: 1},
				grpc.UseCompressor(gzip.Name), grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from))
			took := time.Since(began)
			time.Sleep(time.Minute)
			if got := trailer.Get("region"); took != tc.at || status.Code(err) != tc.code || len(got) != 1 ||
				got[0] != tc.from {
				t.Errorf("answer of %v after %v: %v, want %v's after %v: %v", got, took, err, tc.from, tc.at, tc.code)
			}
			if err == nil && (header.Get("region")[0] != tc.from || from.Addr == nil || reply.GetId() != 7) {
				t.Errorf("header %v, peer %v, reply %v, want those of %v", header, from.Addr, reply, tc.from)
			}
			if eu, us := r.eu.Counts(), r.us.Counts(); eu.Attempts != 1 || us.Attempts != tc.hedges || us.Hedges != tc.hedges ||
				eu.InFlight+us.InFlight != 0 {
				t.Errorf("attempts at eu %+v, at us %+v, want one and %d hedges, and none in flight", eu, us, tc.hedges)
			}
			for _, rec := range r.us.Records() {
				if rec.Metadata.Get("tenant")[0] != "t1" || rec.Number == 0 {
					t.Errorf("us got %v of attempt %d, want the caller's metadata and a number", rec.Metadata, rec.Number)
				}
			}
			r.check(t, tc.hedges)
		}, doors[:2]...)
	}
}

// check checks what stats and traces name.
func (r *regions) check(t *testing.T, hedges int64) {
	t.Helper()
	for _, m := range r.scheduler.Methods() {
		calls, sent, received := int64(1), hedges, int64(0)
		if m.Target == r.us.Target() {
			calls, sent, received = 0, 0, hedges
		}
		if to := []string{r.us.Target()}; calls > 0 && hedges > 0 && !slices.Equal(m.Destinations, to) {
			t.Errorf("hedges of %s went to %q, want %q", m.Target, m.Destinations, to)
		}
		if m.Calls != calls || m.Hedges != sent || m.Received != received {
			t.Errorf("%s: %d calls, %d hedges, %d received, want %d, %d, %d", m.Target, m.Calls, m.Hedges, m.Received, calls,
				sent, received)
		}
	}
	for _, e := range r.sent {
		if e.Target != r.eu.Target() || e.Destination != r.us.Target() {
			t.Errorf("the trace has a hedge of %s to %s", e.Target, e.Destination)
		}
	}
	if int64(len(r.sent)) != hedges {
		t.Errorf("the trace has %d hedges, want %d", len(r.sent), hedges)
	}
}

// slowCopy is a request of the older API. Its copy for a hedge, by an encoding later than the
// primary's, is ready after 20 ms.
type slowCopy struct {
	XXX_sent time.Time
}

func (m *slowCopy) Reset()         { *m = slowCopy{} }
func (m *slowCopy) String() string { return "slowCopy" }
func (*slowCopy) ProtoMessage()    {}

func (m *slowCopy) Marshal() ([]byte, error) {
	if time.Now().After(m.XXX_sent) {
		time.Sleep(time.Until(m.XXX_sent.Add(20 * ms)))
	}
	return nil, nil
}

func (m *slowCopy) Unmarshal([]byte) error { return nil }

// TestHedgeTo_CountsWhatIsSent has calls end while the request is copied for a hedge that has been
// admitted: none is sent, and none counts.
func TestHedgeTo_CountsWhatIsSent(t *testing.T) {
	failover := with{hedge.WithFailover()}
	down := plan{Delay: 2 * ms, Code: codes.Unavailable}
	for _, tc := range []struct {
		name      string
		eu        plan
		opts      []hedge.Option
		gone      time.Duration // when the caller gives up
		hedges    int64
		failovers int64
	}{
		{name: "eu answers during the copy", eu: plan{Delay: 15 * ms}, gone: time.Second},
		{name: "eu answers after the copy", eu: plan{Delay: 25 * ms}, gone: time.Second, hedges: 1},
		{name: "the caller gives up a failover", eu: down, opts: failover, gone: 5 * ms},
		{name: "a failover", eu: down, opts: failover, gone: time.Second, hedges: 1, failovers: 1},
		{name: "eu fails during the copy, and a second hedge is the failover", eu: plan{Delay: 15 * ms,
			Code: codes.Unavailable}, opts: append(failover, hedge.WithMaxHedges(2)), gone: time.Second,
			hedges: 2, failovers: 1},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			r := startRegions(t, tc.eu, plan{Delay: 3 * ms}, append(with{hedge.WithMaxHedges(1)}, tc.opts...)...)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(tc.gone, cancel)
			r.conn.Invoke(ctx, testpb.TestService_Unary_FullMethodName, &slowCopy{time.Now()}, &testpb.Reply{})
			time.Sleep(time.Minute)
			if st := r.scheduler.Stats(); st.Hedges != tc.hedges || st.Hedged != min(tc.hedges, 1) ||
				st.Failovers != tc.failovers || st.Received != r.us.Counts().Attempts || st.Received != tc.hedges {
				t.Errorf("counts %+v, and %d attempts at us, want %d hedges, %d of them failovers", st,
					r.us.Counts().Attempts, tc.hedges, tc.failovers)
			}
			r.check(t, tc.hedges)
		})
	}
}

// nameless is a channel whose target has no name.
type nameless struct{ *grpc.ClientConn }

func (nameless) Target() string { return "" }

func TestHedgeTo_AChannelWithoutAName(t *testing.T) {
	eachDoor(t, "hedged", func(t *testing.T, d door) {
		r := startRegions(t, plan{Ending: testserver.Hang}, plan{}, hedge.WithMaxHedges(1))
		conn := r.eu.ClientT(t, interceptor.DialOptions(r.scheduler, interceptor.HedgeTo(nameless{r.us.ClientT(t)}))...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := callOver(ctx, d, testpb.NewTestServiceClient(conn), &testpb.Request{Messages: 1})
		if r.us.Counts().Attempts != 1 || err != nil {
			t.Errorf("%v after %d attempts at us, want its answer", err, r.us.Counts().Attempts)
		}
	}, doors[:2]...)
}

// TestHedgeTo_ADestinationThatIsDown has eu stall or fail, with two destinations of which the first
// is closed or refuses connections.
func TestHedgeTo_ADestinationThatIsDown(t *testing.T) {
	for _, down := range []string{"closed", "refuses"} {
		for name, eu := range map[string]plan{
			"stalls": {Ending: testserver.Hang}, "fails": {Code: codes.Unavailable},
		} {
			eachDoor(t, down+", eu "+name, func(t *testing.T, d door) {
				r := startRegions(t, eu, plan{}, hedge.WithFailover())
				asia := testserver.StartT(t, testserver.Config{Name: "asia", InMemory: true})
				first, second := asia.ClientT(t), r.us.ClientT(t)
				if asia.Stop(0); down == "closed" {
					first.Close()
				} else {
					first.Connect()
				}
				conn := r.eu.ClientT(t, interceptor.DialOptions(r.scheduler, interceptor.HedgeTo(first, second))...)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				reply, err := callOver(ctx, d, testpb.NewTestServiceClient(conn), &testpb.Request{Id: 7, Messages: 1})
				if err != nil || reply.GetId() != 7 || r.us.Counts().Attempts != 1 {
					t.Errorf("reply %v, %v, and %d attempts at us, want us' answer", reply, err, r.us.Counts().Attempts)
				}
			}, doors[:2]...)
		}
	}
}

// TestHedgeTo_AThrottledDestination has the retryThrottling of us, which gets hedges only, stop them: no
// success of a primary could refill it. Hedges are sent again 10 s after the last one failed.
func TestHedgeTo_AThrottledDestination(t *testing.T) {
	eachDoor(t, "hedged", func(t *testing.T, d door) {
		const calls, fail = 100, 20 // one a second, and in the first ones us fails
		r := startRegions(t, plan{Delay: 50 * ms}, plan{}, hedgetest.Throttle(10, .1))
		us := testserver.StartT(t, testserver.Config{Name: "usa", InMemory: true,
			Script: func(a testserver.Attempt) plan {
				if a.ID < fail {
					return plan{Code: codes.Unavailable}
				}
				return plan{}
			}})
		conn := r.eu.ClientT(t, interceptor.DialOptions(r.scheduler, interceptor.HedgeTo(us.ClientT(t)))...)
		client := testpb.NewTestServiceClient(conn)
		for id := range uint64(calls) {
			if _, err := callOver(t.Context(), d, client, &testpb.Request{Id: id, Messages: 1}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got := r.scheduler.Stats(); got.Throttled < fail/2 || got.HedgeWins < calls-fail-10 {
			t.Errorf("%d throttled, %d won, want none while us fails, and wins 10 s later", got.Throttled, got.HedgeWins)
		}
	}, doors[:2]...)
}

// TestHedgeTo_LimitsOfADestination has hedges to us meet a limit there. The limit is us', and eu's stays
// as it is.
func TestHedgeTo_LimitsOfADestination(t *testing.T) {
	for _, tc := range []struct {
		name string
		us   testserver.Config
		held func(stats.Counts) int64
		row  func(stats.Method) bool // the row has a limit
	}{
		{name: "quota", us: testserver.Config{Script: testserver.ByNumber(plan{},
			plan{Code: codes.ResourceExhausted}, plan{Code: codes.ResourceExhausted})},
			held: func(c stats.Counts) int64 { return c.Guarded },
			row:  func(m stats.Method) bool { return m.Guard.Share < 1 }},
		{name: "resets", us: testserver.Config{Limit: &testserver.Limit{Resets: 20, Per: time.Minute,
			Close: testserver.CloseCalm}, Script: testserver.ByNumber(plan{}, plan{Delay: 100 * ms})},
			held: func(c stats.Counts) int64 { return c.ResetsSpent },
			row:  func(m stats.Method) bool { return m.Resets.Learned > 0 }},
	} {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithBudgetPercent(100))
			tc.us.Name, tc.us.InMemory = "us", true
			us := testserver.StartT(t, tc.us)
			eu := testserver.StartT(t, testserver.Config{Name: "eu", InMemory: true,
				Script: func(testserver.Attempt) plan { return plan{Delay: 50 * ms} }})
			conn := eu.ClientT(t, interceptor.DialOptions(s, interceptor.HedgeTo(us.ClientT(t)))...)
			conn.Connect()
			synctest.Wait()
			var calls sync.WaitGroup
			for id := range uint64(300) {
				calls.Go(func() {
					_, err := callOver(t.Context(), d, testpb.NewTestServiceClient(conn), &testpb.Request{Id: id, Messages: 1})
					if err != nil {
						t.Errorf("call %d: %v", id, err)
					}
				})
				time.Sleep(20 * ms)
			}
			calls.Wait()
			if st := s.Stats(); st.Hedges < 2 || st.Hedges > 200 || tc.held(st) < 100 {
				t.Errorf("%d hedges, and %d held back, want 2 to 200, and at least 100", st.Hedges, tc.held(st))
			}
			for _, m := range s.Methods() {
				if limited := tc.row(m); limited != (m.Target == us.Target()) {
					t.Errorf("the row of %s has a limit: %t; %+v, %+v", m.Target, limited, m.Guard, m.Resets)
				}
			}
		}, doors[:2]...)
	}
}

// TestHedgeTo_WithRetries has eu fail every attempt, or us too, with two retries: by gRPC's retryPolicy
// inside hedging, or by an interceptor outside. The budget pays for failovers only.
func TestHedgeTo_WithRetries(t *testing.T) {
	const calls, budget = 1000, 20
	always := func(code codes.Code) testserver.Script {
		return func(testserver.Attempt) plan { return plan{Code: code} }
	}
	policy := []grpc.DialOption{grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 3, "initialBackoff": ".01s", "maxBackoff": ".01s", "backoffMultiplier": 1,
		"retryableStatusCodes": ["UNAVAILABLE"]}}]}`)}
	outside := []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
		cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) (err error) {
		for range 3 {
			if err = invoker(ctx, method, req, reply, cc, opts...); err == nil {
				break
			}
			time.Sleep(10 * ms)
		}
		return err
	})}
	failover := with{hedge.WithFailover()}
	for _, tc := range []struct {
		name            string
		inside, outside []grpc.DialOption // of both connections, and of eu's
		opts            []hedge.Option
		most            float64 // attempts a call
	}{
		{name: "no failover, no retries", most: 1},
		{name: "failover", opts: failover, most: 1 + .01*budget},
		{name: "retryPolicy", inside: policy, most: 3},
		{name: "retryPolicy and failover", inside: policy, opts: failover, most: 3 * (1 + .01*budget)},
		{name: "retries outside", outside: outside, most: 3},
		{name: "retries outside and failover", outside: outside, opts: failover, most: 3 * (1 + .01*budget)},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			line := fmt.Sprintf("%-28s", tc.name)
			for _, us := range []codes.Code{codes.OK, codes.Unavailable} {
				s := hedgetest.Fixed(t, time.Second, append(tc.opts, hedge.WithBudgetPercent(budget))...)
				eu, us := serve(t, always(codes.Unavailable)), serve(t, always(us))
				to := append(tc.outside, interceptor.HedgeTo(us.ClientT(t, tc.inside...)))
				client := testpb.NewTestServiceClient(eu.ClientT(t, interceptor.DialOptions(s, append(to, tc.inside...)...)...))
				failed := 0
				for id := range uint64(calls) {
					if _, err := client.Unary(t.Context(), &testpb.Request{Id: id}); err != nil {
						failed++
					}
					time.Sleep(100 * ms)
				}
				time.Sleep(time.Second)
				attempts := float64(eu.Counts().Attempts+us.Counts().Attempts) / calls
				line += fmt.Sprintf(" | %5.1f%% failed, %.2f attempts a call", 100*float64(failed)/calls, attempts)
				if most := tc.most + .01; attempts > most {
					t.Errorf("%.2f attempts a call, want at most %.2f", attempts, most)
				}
			}
			t.Log(line)
		})
	}
}

// TestHedgeTo_OfNewClient: a connection would ignore the option, and its hedges would go nowhere else.
func TestHedgeTo_OfNewClient(t *testing.T) {
	creds := grpc.WithTransportCredentials(insecure.NewCredentials())
	options := append(interceptor.DialOptions(hedgetest.All(t), creds), interceptor.HedgeTo())
	if conn, err := grpc.NewClient("passthrough:///a", options...); err == nil ||
		!strings.Contains(err.Error(), "HedgeTo: must be an argument of interceptor.DialOptions") {
		t.Errorf("%v, %v, want an error that says where HedgeTo belongs", conn, err)
	}
}
