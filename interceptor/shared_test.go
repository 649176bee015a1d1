package interceptor_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

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
// would send what the primary has received.
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
