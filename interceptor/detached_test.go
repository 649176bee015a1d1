package interceptor_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
)

// cutTexts are failures of a call whose connection was cut.
var cutTexts = []string{
	`closing transport due to: connection error: desc = "error reading from server: EOF", received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "too much"`,
	`connection error: desc = "error reading from server: EOF"`,
}

// readOnce and readAgain are requests of a codec's own.
type (
	readOnce  struct{ from io.Reader }
	readAgain struct{ text string }
)

// TestRule03_ACutCallIsRepeated has a call fail because its connection was cut: it is repeated if resets were sent lately and
// its method may run twice, also if it may not be hedged.
func TestRule03_ACutCallIsRepeated(t *testing.T) {
	const losers = 20
	for _, tc := range []struct {
		name     string
		req      any // nil: a message
		losers   int // before
		method   string
		failures int // attempts that fail
		opts     []grpc.CallOption
		text     string
		attempts int
		code     codes.Code
	}{
		{"no resets were sent", nil, 0, "/a/Get", 1, nil, cutTexts[0], 1, codes.Unavailable},
		{"the server says so", nil, losers, "/a/Get", 1, nil, cutTexts[0], 2, codes.OK},
		{"the server says nothing", nil, losers, "/a/Get", 1, nil, cutTexts[1], 2, codes.OK},
		{"another error", nil, losers, "/a/Get", 1, nil, "no healthy upstream", 1, codes.Unavailable},
		{"twice", nil, losers, "/a/Get", 2, nil, cutTexts[0], 3, codes.OK},
		{"three times", nil, losers, "/a/Get", 3, nil, cutTexts[0], 3, codes.Unavailable},
		{"a method that is being learned", nil, losers, "/a/GetOther", 1, nil, cutTexts[0], 2, codes.OK},
		{"a method that must not run twice", nil, losers, "/a/Put", 1, nil, cutTexts[0], 1, codes.Unavailable},
		{"a request that can be read once", &readOnce{strings.NewReader("all of it")}, losers, "/a/Get", 1, nil, cutTexts[0], 1, codes.Unavailable},
		{"a request that can be read again", &readAgain{"all of it"}, losers, "/a/Get", 1, nil, cutTexts[0], 2, codes.OK},
		{"not to be hedged", nil, losers, "/a/Get", 1, []grpc.CallOption{hedge.Off()}, cutTexts[0], 1, codes.Unavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := hedge.New(hedge.WithMethods("/a/Get*"), hedge.WithTrigger(hedge.Fixed(10*ms)), hedge.WithBudgetPercent(100))
				if err != nil {
					t.Fatal(err)
				}
				var attempts []int
				var slow atomic.Bool
				unary := interceptor.Unary(s)
				invoke := func(ctx context.Context, method string, req, reply any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
					n := previousAttempts(ctx)
					if slow.Load() {
						select {
						case <-time.After(time.Duration(20-10*n) * ms):
							return nil
						case <-ctx.Done():
							return status.FromContextError(ctx.Err()).Err()
						}
					}
					attempts = append(attempts, n)
					for _, opt := range opts {
						if header, ok := opt.(grpc.HeaderCallOption); ok {
							*header.HeaderAddr = metadata.Pairs("attempt", fmt.Sprint(n))
						}
					}
					if n < tc.failures {
						return status.Error(codes.Unavailable, tc.text)
					}
					reply.(*wrapperspb.Int64Value).Value = int64(n)
					return nil
				}
				for range tc.losers {
					slow.Store(true)
					if err := unary(t.Context(), "/a/Get", wrapperspb.Int64(1), wrapperspb.Int64(0), nil, invoke); err != nil {
						t.Fatal(err)
					}
					synctest.Wait() // a loser may still read slow
				}
				synctest.Wait() // until no loser reads slow
				slow.Store(false)
				var header metadata.MD
				reply := wrapperspb.Int64(-1)
				req := tc.req
				if req == nil {
					req = wrapperspb.Int64(1)
				}
				var outcome hedge.Outcome
				err = unary(t.Context(), tc.method, req, reply, nil, invoke, append(tc.opts, grpc.Header(&header), hedge.Report(&outcome))...)
				last := len(attempts) - 1
				if won := outcome.Winner; outcome.Attempts != tc.attempts || err == nil && won != last || err != nil && won != 0 {
					t.Errorf("reported: %+v", outcome)
				}
				if last+1 != tc.attempts || status.Code(err) != tc.code {
					t.Errorf("attempts %v, %v; want %d, %v", attempts, err, tc.attempts, tc.code)
				}
				if err == nil && (reply.Value != int64(last) || first(header) != fmt.Sprint(last)) {
					t.Errorf("reply %v, header %v of attempt %d", reply, header, last)
				}
				if err != nil && first(header) != "0" {
					t.Errorf("header %v with the primary's error", header)
				}
				if got := s.Stats().Repeated; got != int64(tc.attempts-1) {
					t.Errorf("%d repeated", got)
				}
			})
		})
	}
}

// TestRule07_NoResets has no loser be reset on the wire, of unary calls and of streams, and all of them end.
func TestRule07_NoResets(t *testing.T) {
	for _, limit := range []int{0, 5} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			for _, streams := range []bool{false, true} {
				got := traffic{rate: 100, callers: 16, streams: streams, lasts: 4 * time.Second, hedged: true,
					options: []hedge.Option{hedge.WithResetLimit(limit, time.Minute), hedge.WithWarmup(20, 10*ms)}}.run(t)
				if got.conns.Resets > int64(limit) || limit > 0 && got.conns.Resets == 0 || len(got.failed) > 0 {
					t.Errorf("streams=%v: %d resets, failed: %v", streams, got.conns.Resets, got.failed)
				}
				if got.stats.Left == 0 || got.stats.Left+got.conns.Resets < got.stats.Hedges/2 {
					t.Errorf("streams=%v: %+v", streams, got.stats)
				}
			}
		})
	}
}

// TestDetached_CancelledBefore has a call be made with a context that was cancelled before: no attempt that could be carried out
// is sent, as without the interceptor, where gRPC looks at the context first.
func TestDetached_CancelledBefore(t *testing.T) {
	s := fixed(t, 10*ms, hedge.WithResetLimit(0, 0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		if ctx.Err() == nil {
			t.Error("the attempt could be sent")
		}
		return status.FromContextError(ctx.Err()).Err()
	}
	for range 100 {
		if err := interceptor.Unary(s)(ctx, "/a/Get", wrapperspb.Int64(1), wrapperspb.Int64(0), nil, invoke); status.Code(err) != codes.Canceled {
			t.Fatal(err)
		}
	}
}
