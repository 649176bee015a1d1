package hedge_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

func TestNewContext(t *testing.T) {
	type key struct{}
	with := func(opts ...grpc.CallOption) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return hedge.NewContext(ctx, opts...) }
	}
	derived := func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, 1) }
	const never = -1
	for _, tc := range []struct {
		name     string
		contexts []func(context.Context) context.Context
		opts     []grpc.CallOption
		want     time.Duration
	}{
		{"nothing", nil, nil, never},
		{"After", []func(context.Context) context.Context{with(hedge.After(ms))}, nil, ms},
		{"After, derived from", []func(context.Context) context.Context{with(hedge.After(ms)), derived}, nil, ms},
		{"the last option counts", []func(context.Context) context.Context{with(hedge.Off(), hedge.After(ms))}, nil, ms},
		{"the inner context counts", []func(context.Context) context.Context{with(hedge.After(ms)), derived, with(hedge.After(2 * ms))}, nil, 2 * ms},
		{"an inner context of nothing", []func(context.Context) context.Context{with(hedge.After(ms)), with()}, nil, ms},
		{"Off in an inner context", []func(context.Context) context.Context{with(hedge.After(ms)), with(hedge.Off())}, nil, never},
		{"the call's own options count", []func(context.Context) context.Context{with(hedge.Off())}, []grpc.CallOption{hedge.After(3 * ms)}, 3 * ms},
		{"the call's own Off", []func(context.Context) context.Context{with(hedge.After(ms))}, []grpc.CallOption{hedge.Off()}, never},
		{"options of others", []func(context.Context) context.Context{with(hedge.After(ms), grpc.WaitForReady(true), nil)}, []grpc.CallOption{grpc.WaitForReady(true)}, ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := hedgetest.All(t)
			ctx := t.Context()
			for _, wrap := range tc.contexts {
				ctx = wrap(ctx)
			}
			c := hcall.Begin(registry.Of(s), ctx, target, method, nil, tc.opts...)
			delay := time.Duration(never)
			if c.Hedged() {
				delay = c.Plan().Due
			}
			if delay != tc.want {
				t.Errorf("hedged after %v, want %v", delay, tc.want)
			}
		})
	}
}

// An attempt's context is derived from the call's, so what is called with it has the options too.
func TestNewContext_AttemptsInherit(t *testing.T) {
	s := hedgetest.All(t)
	ctx := hedge.NewContext(t.Context(), hedge.Off())
	_, err := hedge.Do(ctx, s, target, method, func(ctx context.Context) (int, error) {
		return hedge.Do(ctx, s, target, "/pkg.Svc/Inner", func(context.Context) (int, error) { return 0, nil })
	})
	if got := s.Stats(); err != nil || got != (stats.Counts{Calls: 2, Off: 2}) {
		t.Errorf("%+v, %v", got, err)
	}
}
