package interceptor_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// goroutine returns what tells this goroutine from others.
func goroutine() string {
	stack := make([]byte, 64)
	stack = stack[:runtime.Stack(stack, false)]
	id, _, _ := bytes.Cut(stack, []byte(" ["))
	return string(id)
}

// TestRule17_AFastCallStaysOnItsGoroutine looks at calls that need no hedge from below. They leave
// no goroutine.
func TestRule17_AFastCallStaysOnItsGoroutine(t *testing.T) {
	unary := interceptor.Unary(hedgetest.Fixed(t, time.Hour))
	req, reply := wrapperspb.Int64(1), wrapperspb.Int64(2)
	opts := []grpc.CallOption{grpc.WaitForReady(true)}
	caller, before := goroutine(), runtime.NumGoroutine()
	invoke := func(ctx context.Context, method string, gotReq, gotReply any, _ *grpc.ClientConn,
		gotOpts ...grpc.CallOption) error {
		if got := goroutine(); got != caller {
			t.Errorf("it runs on %s, not %s", got, caller)
		}
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines, %d before the call", n, before)
		}
		if gotReq != any(req) || gotReply != any(reply) {
			t.Error("request or reply was cloned")
		}
		if &gotOpts[0] != &opts[0] {
			t.Error("call options were copied")
		}
		return nil
	}
	for range 1000 {
		if err := unary(t.Context(), "/a/B", req, reply, nil, invoke, opts...); err != nil {
			t.Fatal(err)
		}
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

// TestRule17_Allocations counts the allocations of a call that needs no hedge. A throttle or a
// policy needs the trailer.
func TestRule17_Allocations(t *testing.T) {
	for name, tc := range map[string]struct {
		opts []hedge.Option
		most float64
	}{
		"alone":           {nil, 3},
		"with a trace":    {[]hedge.Option{hedge.WithTrace((&told{}).trace()), hedge.WithLogger(slog.Default())}, 3},
		"with a throttle": {[]hedge.Option{hedgetest.Throttle(10, 0.1)}, 5},
		"with a policy": {[]hedge.Option{hedge.WithServiceConfig(hedging(`{"maxAttempts": 2, "hedgingDelay": "3600s"}`))},
			6},
	} {
		t.Run(name, func(t *testing.T) {
			unary := interceptor.Unary(hedgetest.Fixed(t, time.Hour, tc.opts...))
			req, reply := wrapperspb.Int64(1), wrapperspb.Int64(2)
			ctx := t.Context()
			n := testing.AllocsPerRun(1000, func() {
				if err := unary(ctx, "/test.Service/Method", req, reply, nil, listen); err != nil {
					t.Error(err)
				}
			})
			t.Logf("%v allocations", n)
			if n > tc.most {
				t.Errorf("%v allocations over a bare invoker, want at most %v", n, tc.most)
			}
		})
	}
}
