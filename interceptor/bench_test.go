package interceptor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// listen does what any invoker does with its context: it asks for the channel of its end.
func listen(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
	_ = ctx.Done()
	return nil
}

// BenchmarkUnary is the cost of a call that needs no hedge, over an invoker that does nothing: bare; inside a
// cancellable context and a timer, which no hedging can do without; and hedged, with a delay that was learned.
func BenchmarkUnary(b *testing.B) {
	conn, err := grpc.NewClient("passthrough:///bench", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	req, reply := wrapperspb.Int64(1), wrapperspb.Int64(2)
	contextAndTimer := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(time.Second, func() { cancel() }).Stop()
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	// Calls this short would be hedged after the least delay, within the benchmark's own noise.
	s := hedgetest.All(b, hedge.WithMinDelay(time.Second))
	off := hedgetest.All(b, hedge.WithMaxHedges(0))
	for _, bc := range []struct {
		name        string
		interceptor grpc.UnaryClientInterceptor
	}{
		{"bare", func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoker(ctx, method, req, reply, cc, opts...)
		}},
		{"contextAndTimer", contextAndTimer},
		{"hedged", interceptor.Unary(s)},
		{"watched", interceptor.Unary(off)},
		{"none", interceptor.Unary(nil)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bc.interceptor(b.Context(), "/pkg.Svc/Get", req, reply, conn, listen); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(bc.name+"Parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				reply := wrapperspb.Int64(2)
				for pb.Next() {
					if err := bc.interceptor(b.Context(), "/pkg.Svc/Get", req, reply, conn, listen); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// hundredRules are a hundred patterns for methods and as many for targets, of which ten each match the call of the benchmarks.
func hundredRules() []hedge.Option {
	var rules []hedge.Option
	for i := range 100 {
		methods, targets := fmt.Sprintf("/pkg.Svc%d/*", i), fmt.Sprintf("dns:///host-%d*", i)
		if i < 10 {
			methods, targets = "/pkg.Svc/"+strings.Repeat("?", i)+"*", "passthrough:///"+strings.Repeat("*", i+1)
		}
		rules = append(rules,
			hedge.WithMethodOptions(methods, hedge.WithMaxHedges(1+i%4), hedge.WithMinDelay(time.Second)),
			hedge.WithTargetOptions(targets, hedge.WithMinDelay(time.Minute)))
	}
	return rules
}

// BenchmarkRules is the cost of a call that needs no hedge, without rules and with hundreds. They are applied once for each method, so
// that a call costs the same.
func BenchmarkRules(b *testing.B) {
	conn, err := grpc.NewClient("passthrough:///bench", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	req, reply := wrapperspb.Int64(1), wrapperspb.Int64(2)
	for _, bc := range []struct {
		name  string
		rules []hedge.Option
	}{{"none", nil}, {"hundreds", hundredRules()}} {
		for name, most := range map[string]int{"hedged": 2, "watched": 0} {
			options := append(slices.Clone(bc.rules), hedge.WithAllMethods(), hedge.WithMinDelay(time.Second), hedge.WithMaxHedges(most))
			if most == 0 && bc.rules != nil {
				options = append(options, hedge.WithTargetOptions("passthrough:///bench", hedge.WithMethodOptions("/pkg.Svc/Get", hedge.WithMaxHedges(0))))
			}
			s := hedgetest.New(b, options...)
			call := interceptor.Unary(s)
			b.Run(name+"/"+bc.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := call(b.Context(), "/pkg.Svc/Get", req, reply, conn, listen); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
