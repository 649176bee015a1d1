package shed_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

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
