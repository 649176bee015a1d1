package interceptor_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// ofTenant is an option for an interceptor, which removes it.
type ofTenant struct {
	grpc.EmptyCallOption
	name string
}

// filtering removes tenants from the options, in place as in a common idiom, and sends them.
func filtering() []grpc.DialOption {
	filter := func(ctx context.Context, opts []grpc.CallOption) (context.Context, []grpc.CallOption) {
		left := opts[:0]
		for _, opt := range opts {
			if of, ok := opt.(ofTenant); ok {
				ctx = metadata.AppendToOutgoingContext(ctx, "tenant", of.name)
			} else {
				left = append(left, opt)
			}
		}
		clear(opts[len(left):])
		return ctx, left
	}
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ctx, opts = filter(ctx, opts)
			return invoker(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			ctx, opts = filter(ctx, opts)
			return streamer(ctx, desc, cc, method, opts...)
		}),
	}
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
			script := func(a testserver.Attempt) testserver.Plan {
				if a.Number < 2 {
					return testserver.Plan{Delay: never}
				}
				return testserver.Plan{}
			}
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: script})
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
		{name: "pointer", hedged: true,
			form: func(h *metadata.MD) grpc.CallOption { return &grpc.HeaderCallOption{HeaderAddr: h} }},
		{name: "embedded header",
			form: func(h *metadata.MD) grpc.CallOption { return headerInside{grpc.HeaderCallOption{HeaderAddr: h}} }},
		{name: "pointer to embedded header",
			form: func(h *metadata.MD) grpc.CallOption { return &headerInside{grpc.HeaderCallOption{HeaderAddr: h}} }},
		{name: "embedded option", form: func(h *metadata.MD) grpc.CallOption { return optionInside{grpc.Header(h)} }},
		{name: "deep", form: func(h *metadata.MD) grpc.CallOption { return deepInside{optionInside{grpc.Header(h)}} }},
		{name: "none", form: func(*metadata.MD) grpc.CallOption { return &emptyInside{} }, hedged: true},
	} {
		for _, opts := range [][]hedge.Option{nil, {hedge.WithDryRun(true)}} {
			eachDoor(t, fmt.Sprint(tc.name, len(opts)), func(t *testing.T, d door) {
				script := func(a testserver.Attempt) testserver.Plan {
					return testserver.Plan{Delay: 15 * ms, Header: metadata.Pairs("attempt", fmt.Sprint(a.Number))}
				}
				cluster := testserver.StartT(t, testserver.Config{InMemory: true, Script: script})
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
					t.Errorf("%d hedges, dry run %d, unknown option %d; want a hedge: %v", c.Hedges, c.DryRun, c.UnknownOption,
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
