package interceptor_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
)

// TestGuard_HearsOfEachFailureOnce: each RESOURCE_EXHAUSTED of an attempt halves the share once.
func TestGuard_HearsOfEachFailureOnce(t *testing.T) {
	config := hedge.WithServiceConfig(`{"methodConfig": [{"name": [{}],
		"hedgingPolicy": {"maxAttempts": 2, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`)
	for _, tc := range []struct {
		name   string
		steps  []step
		option hedge.Option
		calls  []grpc.CallOption
		failed int
	}{
		{name: "none", steps: []step{answers(50 * ms), answers(50 * ms)}},
		{name: "an unhedged call", steps: []step{fails(ms, codes.ResourceExhausted)}, calls: []grpc.CallOption{hedge.Off()}, failed: 1},
		{name: "the same, with a throttle", steps: []step{fails(ms, codes.ResourceExhausted)}, calls: []grpc.CallOption{hedge.Off()}, option: hedge.WithThrottle(10, 1), failed: 1},
		{name: "a primary before its hedge", steps: []step{fails(ms, codes.ResourceExhausted)}, failed: 1},
		{name: "the same, with another throttle", steps: []step{fails(ms, codes.ResourceExhausted)}, option: hedge.WithThrottle(10, 1), failed: 1},
		{name: "a hedge", steps: []step{answers(50 * ms), fails(ms, codes.ResourceExhausted)}, failed: 1},
		{name: "a hedge that was turned away", steps: []step{answers(50 * ms), fails(ms, codes.ResourceExhausted, "-1")}},
		{name: "both", steps: []step{fails(20*ms, codes.ResourceExhausted), fails(20*ms, codes.ResourceExhausted)}, failed: 2},
		{name: "both, with a hedgingPolicy", steps: []step{fails(ms, codes.ResourceExhausted), fails(ms, codes.ResourceExhausted)}, option: config, failed: 2},
		{name: "a loser that is cancelled", steps: []step{answers(50 * ms), answers(ms)}},
		{name: "a call that is not found", steps: []step{fails(ms, codes.NotFound)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fixed(t, 10*ms, hedge.WithMaxHedges(1), tc.option)
				_ = (&stub{steps: tc.steps}).call(t.Context(), s, wrapperspb.Int64(0), tc.calls...)
				time.Sleep(5 * time.Second) // the pause
				want, grown := 1.0, 0.0
				for range tc.failed {
					want, grown = want/2, 0.001
				}
				if got := s.Targets()[0].Guard; got.Share < want || got.Share > want+grown {
					t.Errorf("the share is %v, want %v; %s", got.Share, want, got.Reason)
				}
			})
		})
	}
}
