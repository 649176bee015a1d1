package interceptor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// variables are one caller's variables, each with a value of its own before the call, and the
// options for them.
func variables(name string) (*observed, []grpc.CallOption) {
	o := &observed{header: metadata.Pairs("attempt", name+" header"), trailer: metadata.Pairs("attempt", name+" trailer"),
		peer: peer.Peer{Addr: &net.UnixAddr{Name: name + " peer"}}}
	return o, []grpc.CallOption{grpc.Header(&o.header), grpc.Trailer(&o.trailer), grpc.Peer(&o.peer)}
}

func (o *observed) says() [3]string {
	return [3]string{first(o.header), first(o.trailer), o.peer.Addr.String()}
}

// custom is a call option of another library, which points to its caller's memory.
type custom struct {
	grpc.EmptyCallOption
	memory *int
}

// isPassed reports whether an attempt has exactly this option, once.
func (c custom) isPassed(opts []grpc.CallOption) bool {
	n, same := 0, 0
	for _, opt := range opts {
		if got, ok := opt.(custom); ok {
			if n++; got == c {
				same++
			}
		}
	}
	return n == 1 && same == 1
}

// inside changes the context and the options of each attempt, of unary calls and of streams, and may
// fail the attempt.
func inside(change func(context.Context, []grpc.CallOption) (context.Context, []grpc.CallOption, error),
) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ctx, opts, err := change(ctx, opts)
			if err != nil {
				return err
			}
			return invoker(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			ctx, opts, err := change(ctx, opts)
			if err != nil {
				return nil, err
			}
			return streamer(ctx, desc, cc, method, opts...)
		}),
	}
}

// below looks at the options of each attempt, and may fail the attempt.
func below(look func(context.Context, []grpc.CallOption) error) []grpc.DialOption {
	return inside(func(ctx context.Context, opts []grpc.CallOption) (context.Context, []grpc.CallOption, error) {
		return ctx, append(opts, grpc.WaitForReady(true)), look(ctx, opts)
	})
}

// TestRule06_CallOptionsAreTheWinners gives a call two options of each kind, as an outer
// interceptor that adds its own does. Each is filled once, at the end, from the attempt that won,
// as with plain gRPC. A call that fails before there is a stream fills none. An option of another
// library goes to all attempts unchanged.
func TestRule06_CallOptionsAreTheWinners(t *testing.T) {
	type plans = []plan
	late, slow, quick := plan{Delay: 15 * ms}, plan{Delay: time.Hour, HeaderAtOnce: true}, plan{}
	for _, tc := range []struct {
		name     string
		delay    time.Duration // 0: plain gRPC
		plans    plans
		winner   int // -1: there is no stream
		code     codes.Code
		rejected []int64 // attempts with a rejected answer
	}{
		{name: "no stream", delay: time.Hour, plans: plans{late}, winner: -1, code: codes.Internal},
		{name: "plain", plans: plans{late}},
		{name: "primary", delay: 10 * ms, plans: plans{late, slow}},
		{name: "hedge", delay: 10 * ms, plans: plans{slow, quick}, winner: 1},
		{name: "both fail", delay: 10 * ms,
			plans: plans{{Delay: 15 * ms, Code: codes.Internal}, {Delay: 10 * ms, Code: codes.Internal}},
			code:  codes.Internal},
		{name: "hedge, after a rejection", delay: time.Hour, plans: plans{quick, quick}, winner: 1, rejected: []int64{0}},
		{name: "rejected, and none is better", delay: time.Hour, plans: plans{quick, quick}, rejected: []int64{0, 1}},
	} {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Backends: 2,
				Script: func(a testserver.Attempt) plan {
					p := tc.plans[a.Number]
					p.Header = metadata.Pairs("attempt", fmt.Sprint(a.Number))
					p.Trailer = p.Header
					return p
				}})
			s := hedgetest.FixedOrPlain(t, tc.delay, hedge.WithMaxHedges(1), goodBut(tc.rejected...))
			own := custom{memory: new(int)}
			look := func(ctx context.Context, opts []grpc.CallOption) error {
				if !own.isPassed(opts) {
					t.Errorf("attempt %d has the options %+v, want %+v among them", simulation.AttemptOf(ctx), opts, own)
				}
				return nil
			}
			client := testpb.NewTestServiceClient(dial(t, cluster, s, below(look)...))
			one, options := variables("one")
			two, more := variables("two")
			want, before := [2][3]string{one.says(), two.says()}, [2][3]string{one.says(), two.says()}
			var order []string
			if options = append(append(options, more...), own, grpc.UseCompressor("identity"),
				grpc.OnFinish(func(err error) { order = append(order, "first", status.Code(err).String(), first(one.trailer)) }),
				grpc.OnFinish(func(error) { order = append(order, "second") })); tc.winner < 0 {
				options = append(options, grpc.CallContentSubtype("unknown"))
			}
			var err error
			if d == unary {
				_, err = client.Unary(t.Context(), &testpb.Request{Id: 1}, options...)
			} else {
				var st grpc.ServerStreamingClient[testpb.Reply]
				for st, err = client.ServerStream(t.Context(), &testpb.Request{Id: 1, Messages: 2}, options...); err == nil; {
					var reply *testpb.Reply
					if reply, err = st.Recv(); err == nil &&
						(int(reply.Attempt) != tc.winner || first(one.trailer) != before[0][1] || len(order) > 0) {
						t.Errorf("%v, trailer %v and OnFinish %v before the end of the stream", reply, one.trailer, order)
					}
				}
				if err == io.EOF {
					header, _ := st.Header()
					p, _ := peer.FromContext(st.Context())
					if first(header) != fmt.Sprint(tc.winner) || first(st.Trailer()) != fmt.Sprint(tc.winner) ||
						p.Addr.String() != one.peer.Addr.String() {
						t.Errorf("the stream has %v, %v, %v", header, st.Trailer(), p)
					}
					err = nil
				}
			}
			synctest.Wait()
			if number := fmt.Sprint(tc.winner); tc.winner >= 0 {
				r := cluster.RecordsOf(1)[tc.winner]
				want[0] = [3]string{number, number, cluster.Address(r.Backend)}
				want[1] = want[0]
				if !slices.Equal(order, []string{"first", tc.code.String(), number, "second"}) || r.Number != tc.winner {
					t.Errorf("OnFinish: %q", order)
				}
			}
			if got := [2][3]string{one.says(), two.says()}; status.Code(err) != tc.code || got != want {
				t.Errorf("%v\n got %q\nwant %q", err, got, want)
			}
		}, doors[:2]...)
	}
}

// TestRule06_TheCallersOptionsAreItsOwn refills the slice of a stream's options while the stream is
// in use, beside plain gRPC.
func TestRule06_TheCallersOptionsAreItsOwn(t *testing.T) {
	for _, tc := range []struct {
		name  string
		delay time.Duration
		dry   bool
	}{{"plain", 0, false}, {"no hedge", time.Hour, false}, {"a hedge", 10 * ms, false}, {"a dry run", 10 * ms, true}} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			cluster := serve(t, func(a testserver.Attempt) plan {
				return plan{Delay: time.Duration(20-15*a.Number) * ms, Header: a.Metadata}
			})
			s := hedgetest.FixedOrPlain(t, tc.delay, hedge.WithMaxHedges(1), hedge.WithDryRun(tc.dry))
			conn := dial(t, cluster, s)
			tenant := func(name string) grpc.CallOption { return grpc.PerRPCCredentials(tenant(name)) }
			var mine, trailer, others metadata.MD
			var to peer.Peer
			opts := append(make([]grpc.CallOption, 0, 8), tenant("mine"), grpc.Header(&mine), grpc.Trailer(&trailer),
				grpc.OnFinish(func(error) {}))
			st, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true},
				testpb.TestService_ServerStream_FullMethodName, opts...)
			if err != nil {
				t.Fatal(err)
			}
			var refilled sync.WaitGroup
			refilled.Go(func() {
				_ = append(opts[:0], tenant("another"), grpc.Peer(&to), grpc.Peer(&to), grpc.Header(&others),
					grpc.Header(&others), grpc.Header(&others))
			})
			for err = st.SendMsg(&testpb.Request{Messages: 1}); err == nil; {
				err = st.RecvMsg(new(testpb.Reply))
			}
			refilled.Wait()
			if got := mine.Get("tenant"); err != io.EOF || !slices.Equal(got, []string{"mine"}) || others != nil ||
				to.Addr != nil {
				t.Errorf("%v: the call of %q; another's variables hold %v and %v", err, got, others, to.Addr)
			}
		})
	}
}

// tenant is the owner of credentials.
type tenant string

func (t tenant) RequireTransportSecurity() bool { return false }
func (t tenant) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"tenant": string(t)}, nil
}

// TestRule05_AttemptsCarryTheCallersContext looks at the attempts' contexts from inside, and at
// their metadata from the server.
func TestRule05_AttemptsCarryTheCallersContext(t *testing.T) {
	type key struct{}
	eachDoor(t, "context", func(t *testing.T, d door) {
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Second)
		defer cancel()
		deadline, _ := ctx.Deadline()
		var seen atomic.Int64
		own := custom{memory: new(int)}
		cluster := testserver.StartT(t, testserver.Config{InMemory: true, Latency: testserver.Constant(100 * ms)})
		client := testpb.NewTestServiceClient(dial(t, cluster, hedgetest.Fixed(t, 10*ms),
			below(func(ctx context.Context, opts []grpc.CallOption) error {
				n := int(seen.Add(1)) - 1
				if got, ok := ctx.Deadline(); !ok || !got.Equal(deadline) || ctx.Value(key{}) != "value" ||
					simulation.AttemptOf(ctx) != n || !own.isPassed(opts) {
					t.Errorf("attempt %d is number %d, has the deadline %v, the value %v and the options %v", n,
						simulation.AttemptOf(ctx), got, ctx.Value(key{}), opts)
				}
				return nil
			})...))
		reply, err := callOver(metadata.AppendToOutgoingContext(ctx, "tenant", "blue"), d, client,
			&testpb.Request{Id: 7, Messages: 2}, own)
		records := cluster.RecordsOf(7)
		if err != nil || reply.Attempt != 0 || seen.Load() != 3 || len(records) != 3 {
			t.Fatalf("%v, %v; %d attempts, %d at the server", reply, err, seen.Load(), len(records))
		}
		for n, r := range records {
			marks := append(r.Metadata.Get("grpc-previous-rpc-attempts"), r.Metadata.Get("hedge-primary-in-flight")...)
			if !slices.Equal(r.Metadata.Get("tenant"), []string{"blue"}) ||
				!slices.Equal(marks, [][]string{nil, {"1", "1"}, {"2", "1"}}[n]) {
				t.Errorf("attempt %d: %v", n, r.Metadata)
			}
		}
	})
}

// copying is a stats handler that copies the outgoing metadata, as those do that trace calls.
type copying struct{ grpcstats.Handler }

func (copying) TagConn(ctx context.Context, _ *grpcstats.ConnTagInfo) context.Context { return ctx }
func (copying) HandleConn(context.Context, grpcstats.ConnStats)                       {}
func (copying) HandleRPC(context.Context, grpcstats.RPCStats)                         {}
func (copying) TagRPC(ctx context.Context, _ *grpcstats.RPCTagInfo) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewOutgoingContext(ctx, md)
}

// TestRule05_CallsOfAWinningHedgeAreUnmarked makes calls under the context of a Do value or a
// stream that a hedge has won, and under a context derived from it earlier that holds a copy of its
// metadata.
func TestRule05_CallsOfAWinningHedgeAreUnmarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := serve(t, func(a testserver.Attempt) plan {
			if a.ID == 1 && a.Number == 0 {
				return plan{Ending: testserver.Hang}
			}
			return plan{}
		})
		s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
		conn := dial(t, cluster, s, grpc.WithStatsHandler(copying{}))
		hedged, plain := testpb.NewTestServiceClient(conn), testpb.NewTestServiceClient(cluster.ClientT(t))
		both := func(ctx context.Context) []context.Context {
			return []context.Context{ctx, metadata.AppendToOutgoingContext(ctx, "more", "1")}
		}
		won, err := hedge.Do(t.Context(), s, "target", "method", func(ctx context.Context) ([]context.Context, error) {
			if md, _ := metadata.FromOutgoingContext(ctx); len(md) == 0 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			_, _ = hedged.Unary(ctx, &testpb.Request{})
			return both(ctx), nil
		})
		st, opened := hedged.ServerStream(t.Context(), &testpb.Request{Id: 1, Messages: 2})
		_, received := st.Recv()
		if err = errors.Join(err, opened, received); err != nil {
			t.Fatal(err)
		}
		if r := cluster.RecordsOf(0); len(r) != 1 || r[0].Number != 1 {
			t.Errorf("a call made within a hedge that may still lose: %+v", r)
		}
		for id, ctx := range append(won, both(st.Context())...) {
			for _, client := range []testpb.TestServiceClient{hedged, plain}[:2-id%2] { // only hedging removes copies
				_, err := client.Unary(ctx, &testpb.Request{Id: uint64(id + 2)})
				for _, r := range cluster.RecordsOf(uint64(id + 2)) {
					if err != nil || r.Number != 0 || len(r.Metadata.Get("hedge-primary-in-flight")) > 0 {
						t.Errorf("context %d: %v, %+v", id, err, r)
					}
				}
			}
		}
	})
}

// ofTenant is an option for an interceptor, which removes it.
type ofTenant struct {
	grpc.EmptyCallOption
	name string
}

// filtering removes tenants from the options, in place as in a common idiom, and sends them.
func filtering() []grpc.DialOption {
	return inside(func(ctx context.Context, opts []grpc.CallOption) (context.Context, []grpc.CallOption, error) {
		left := opts[:0]
		for _, opt := range opts {
			if of, ok := opt.(ofTenant); ok {
				ctx = metadata.AppendToOutgoingContext(ctx, "tenant", of.name)
			} else {
				left = append(left, opt)
			}
		}
		clear(opts[len(left):])
		return ctx, left, nil
	})
}

// TestRule06_AnAttemptsOptionsAreItsOwn has an interceptor inside change its slice of options. Every
// attempt has all options nevertheless: many, few, and some that write.
func TestRule06_AnAttemptsOptionsAreItsOwn(t *testing.T) {
	var header metadata.MD
	many := []grpc.CallOption{ofTenant{name: "blue"}}
	for range 20 {
		many = append(many, grpc.WaitForReady(true))
	}
	for name, opts := range map[string][]grpc.CallOption{
		"one option": {ofTenant{name: "blue"}}, "many": many, "a header": {ofTenant{name: "blue"}, grpc.Header(&header)},
	} {
		eachDoor(t, name, func(t *testing.T, d door) {
			script := func(a testserver.Attempt) plan {
				if a.Number < 2 {
					return plan{Delay: never}
				}
				return plan{}
			}
			cluster := serve(t, script)
			client := testpb.NewTestServiceClient(dial(t, cluster, hedgetest.Fixed(t, ms), filtering()...))
			reply, err := callOver(t.Context(), d, client, &testpb.Request{Id: 1, Messages: 1}, slices.Clone(opts)...)
			if err != nil || reply.GetAttempt() != 2 {
				t.Fatalf("the reply is %v, want the second hedge's; %v", reply, err)
			}
			for _, r := range cluster.RecordsOf(1) {
				if got := r.Metadata.Get("tenant"); fmt.Sprint(got) != "[blue]" {
					t.Errorf("attempt %d reached the server with tenant %v", r.Number, got)
				}
			}
		})
	}
}

// Options of gRPC in other forms.
type (
	headerInside struct{ grpc.HeaderCallOption }
	optionInside struct{ grpc.CallOption }
	deepInside   struct{ optionInside }
	emptyInside  struct{ ofTenant }
)

// TestRule06_OptionsInOtherForms passes gRPC's own options in each form that Go allows. The caller
// has the winner's header, as with plain gRPC. A call is hedged unless an option may do what hedging
// cannot see, which counts.
func TestRule06_OptionsInOtherForms(t *testing.T) {
	for _, tc := range []struct {
		name   string
		form   func(header *metadata.MD) grpc.CallOption
		hedged bool
	}{
		{name: "pointer", form: func(h *metadata.MD) grpc.CallOption { return &grpc.HeaderCallOption{HeaderAddr: h} }},
		{name: "embedded header",
			form: func(h *metadata.MD) grpc.CallOption { return headerInside{grpc.HeaderCallOption{HeaderAddr: h}} }},
		{name: "pointer to embedded header",
			form: func(h *metadata.MD) grpc.CallOption { return &headerInside{grpc.HeaderCallOption{HeaderAddr: h}} }},
		{name: "embedded option", form: func(h *metadata.MD) grpc.CallOption { return optionInside{grpc.Header(h)} }},
		{name: "deep", form: func(h *metadata.MD) grpc.CallOption { return deepInside{optionInside{grpc.Header(h)}} }},
		{name: "none", form: func(*metadata.MD) grpc.CallOption { return &emptyInside{} }, hedged: true},
	} {
		for _, opts := range []with{nil, {hedge.WithDryRun(true)}} {
			eachDoor(t, fmt.Sprint(tc.name, len(opts)), func(t *testing.T, d door) {
				script := func(a testserver.Attempt) plan {
					return plan{Delay: 15 * ms, Header: metadata.Pairs("attempt", fmt.Sprint(a.Number))}
				}
				cluster := serve(t, script)
				s := hedgetest.Fixed(t, 10*ms, append(opts, hedge.WithMaxHedges(1))...)
				var plain, hedged metadata.MD
				for to, scheduler := range map[*metadata.MD]*hedge.Scheduler{&plain: nil, &hedged: s} {
					client := testpb.NewTestServiceClient(dial(t, cluster, scheduler))
					_, err := callOver(t.Context(), d, client, &testpb.Request{Messages: 1}, tc.form(to))
					if err != nil {
						t.Error(err)
					}
				}
				c := s.Stats()
				if first(hedged) != first(plain) {
					t.Errorf("the header is %v, by plain gRPC %v", hedged, plain)
				}
				if (c.Hedges+c.DryRun == 1) != tc.hedged || (c.UnknownOption == 0) != tc.hedged {
					t.Errorf("%d hedges, %d dry, %d unknown options; want one: %v", c.Hedges, c.DryRun, c.UnknownOption,
						tc.hedged)
				}
			})
		}
	}
}

// TestRule01_OneMessage uses a message as both request and reply, as plain gRPC allows. A hedge
// would send the message that the primary has received.
func TestRule01_OneMessage(t *testing.T) {
	refused := func(context.Context, string, any, error) bool { return false }
	hedgetest.Run(t, "unary", func(t *testing.T) {
		var sent []int64
		echo := func(_ any, st grpc.ServerStream) error {
			m := new(wrapperspb.Int64Value)
			if err := st.RecvMsg(m); err != nil {
				return err
			}
			sent = append(sent, m.Value)
			m.Value++
			return st.SendMsg(m)
		}
		s := hedgetest.Fixed(t, 10*ms, hedge.WithAcceptable(refused))
		for _, s := range []*hedge.Scheduler{nil, s} {
			m := wrapperspb.Int64(1)
			err := testserver.HandlerT(t, echo, hedgetest.Interceptors(s)...).Invoke(t.Context(), "/a/B", m, m)
			if err != nil || m.Value != 2 {
				t.Errorf("%v, %v; want 2", m, err)
			}
		}
		if c := s.Stats(); fmt.Sprint(sent) != "[1 1]" || c.NotReplayable != 1 {
			t.Errorf("the server got %v, want the request of each call; %d not replayable", sent, c.NotReplayable)
		}
	})
}

// pooled is the context of a web framework that uses it again after the handler. It fails once it is
// over, and keeps no values apart for its users.
type pooled struct {
	context.Context
	t    *testing.T
	over bool // without a lock: the race detector sees a use that is not over when the call returns
}

func (p *pooled) Err() error                  { p.use(); return p.Context.Err() }
func (p *pooled) Done() <-chan struct{}       { p.use(); return p.Context.Done() }
func (p *pooled) Deadline() (time.Time, bool) { p.use(); return p.Context.Deadline() }
func (p *pooled) Value(key any) any           { p.use(); return p.Context.Value(key) }
func (p *pooled) use() {
	if p.over {
		p.t.Errorf("the context is used after its call:\n%s", debug.Stack())
		panic("over")
	}
}

// TestRule01_TheCallersContext uses neither the caller's context nor a function of the user for a
// call that has returned: losers begin with the winner's end, or end before, with, and after it, and
// an interceptor inside reads a loser's context later.
func TestRule01_TheCallersContext(t *testing.T) {
	notFound := plan{Delay: 15 * ms, Code: codes.NotFound}
	for _, tc := range []struct {
		name  string
		plans []plan
	}{
		{name: "the primary wins", plans: []plan{{Delay: 15 * ms}, {Delay: never}}},
		{name: "a hedge begins with its end", plans: []plan{{Delay: 10 * ms}, {Delay: never}}},
		{name: "a hedge wins", plans: []plan{{Delay: never}, {Delay: 5 * ms}}},
		{name: "both at once", plans: []plan{{Delay: 15 * ms}, {Delay: 5 * ms}}},
		{name: "the hedge fails with it", plans: []plan{{Delay: 15 * ms}, {Delay: 5 * ms, Code: codes.Internal}}},
		{name: "both fail", plans: []plan{notFound, notFound}},
	} {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			var over atomic.Bool
			user := func(what string) {
				if over.Load() {
					t.Errorf("%s was called after the call", what)
				}
			}
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithReadOnlyMethods("/*/*"),
				hedge.WithAcceptable(func(context.Context, string, any, error) bool { user("WithAcceptable"); return true }),
				hedge.WithTrace(&hedge.Trace{HedgeSent: func(stats.HedgeSent) { user("HedgeSent") }}))
			cluster := serve(t, testserver.ByNumber(tc.plans...))
			deaf := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
				invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := invoker(ctx, method, req, reply, cc, opts...)
				if simulation.AttemptOf(ctx) > 0 && err != nil {
					time.Sleep(time.Second)
					_, _ = ctx.Deadline()
					_, _ = ctx.Err(), ctx.Value("key")
				}
				return err
			})
			client := testpb.NewTestServiceClient(dial(t, cluster, s, deaf))
			for range 5 {
				over.Store(false)
				ctx := &pooled{Context: t.Context(), t: t}
				_, _ = callOver(ctx, d, client, &testpb.Request{Id: 1, Messages: 1})
				ctx.over = true
				over.Store(true)
				time.Sleep(time.Minute)
			}
		})
	}
}

// reporter is a stats handler that passes events to a function.
type reporter func(context.Context, grpcstats.RPCStats)

func (reporter) TagRPC(ctx context.Context, _ *grpcstats.RPCTagInfo) context.Context   { return ctx }
func (reporter) TagConn(ctx context.Context, _ *grpcstats.ConnTagInfo) context.Context { return ctx }
func (reporter) HandleConn(context.Context, grpcstats.ConnStats)                       {}
func (r reporter) HandleRPC(ctx context.Context, e grpcstats.RPCStats)                 { r(ctx, e) }

// TestRule05_LosersKeepTheirValues has a stats handler look for the caller's value when an attempt
// begins, and again after the call, when the end of a loser may be reported.
func TestRule05_LosersKeepTheirValues(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plans []plan
	}{
		{name: "the primary loses", plans: []plan{{Delay: never}, {Delay: 5 * ms}}},
		{name: "the hedge loses", plans: []plan{{Delay: 15 * ms}, {Delay: never}}},
	} {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			type key struct{}
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithReadOnlyMethods("/*/*"))
			cluster := serve(t, testserver.ByNumber(tc.plans...))
			attempts := make(chan context.Context, 2)
			begin := grpc.WithStatsHandler(reporter(func(ctx context.Context, e grpcstats.RPCStats) {
				if _, ok := e.(*grpcstats.Begin); ok && ctx.Value(key{}) == "x" {
					attempts <- ctx
				}
			}))
			client := testpb.NewTestServiceClient(dial(t, cluster, s, begin))
			ctx := context.WithValue(t.Context(), key{}, "x")
			if _, err := callOver(ctx, d, client, &testpb.Request{Messages: 1}); err != nil {
				t.Fatal(err)
			}
			for range cap(attempts) {
				if got := (<-attempts).Value(key{}); got != "x" {
					t.Errorf("an attempt's context has %v after the call, want the caller's value", got)
				}
			}
		})
	}
}

// TestRule12_InstalledTwice installs a scheduler twice on a connection: hedges and counts are as of
// one installation. A call to another connection under the context of an attempt is hedged.
func TestRule12_InstalledTwice(t *testing.T) {
	eachDoor(t, "twice", func(t *testing.T, d door) {
		var got [2]stats.Counts
		var reached [2]int64
		var log bytes.Buffer
		for i := range got {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			cluster := serve(t, testserver.ByNumber(plan{Delay: 50 * ms}, plan{}))
			another := testserver.StartT(t, testserver.Config{InMemory: true, Name: "another"})
			other := testpb.NewTestServiceClient(dial(t, another, s))
			inside := below(func(ctx context.Context, _ []grpc.CallOption) error {
				_, err := callOver(ctx, d, other, &testpb.Request{Messages: 1})
				return err
			})
			client := testpb.NewTestServiceClient(dial(t, cluster, s, slices.Concat(inside,
				slices.Repeat(hedgetest.Interceptors(s), i))...))
			for range 50 {
				if _, err := callOver(t.Context(), d, client, &testpb.Request{Messages: 1}); err != nil {
					t.Fatal(err)
				}
			}
			got[i], reached[i] = s.Stats(), int64(cluster.Counts().Attempts)
		}
		if got[0] != got[1] || reached[0] != reached[1] || got[0].Calls <= 50 {
			t.Errorf("installed once %+v, twice %+v; the server saw %v", got[0], got[1], reached)
		}
		if n := strings.Count(log.String(), "hedging installed twice"); n != 1 {
			t.Errorf("logged %d times, want once", n)
		}
	})
}
