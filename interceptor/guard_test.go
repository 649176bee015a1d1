package interceptor_test

import (
	"cmp"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestGuard_HearsOfEachFailureOnce: RESOURCE_EXHAUSTED of a hedge alone halves the share. After that
// RESOURCE_EXHAUSTED of any call halves it, once.
func TestGuard_HearsOfEachFailureOnce(t *testing.T) {
	for _, tc := range []struct {
		name   string
		steps  []step
		option hedge.Option
		calls  []grpc.CallOption
		alone  float64 // the share after that
		after  float64 // the share if a hedge has failed alone before; 0: 0.5
	}{
		{name: "none", steps: []step{answers(50 * ms), answers(50 * ms)}},
		{name: "an unhedged call", steps: []step{fails(ms, codes.ResourceExhausted)}, calls: []grpc.CallOption{hedge.Off()},
			after: 0.25},
		{name: "a primary before its hedge", steps: []step{fails(ms, codes.ResourceExhausted)}, after: 0.25},
		{name: "the same, with another throttle", steps: []step{fails(ms, codes.ResourceExhausted)},
			option: hedgetest.Throttle(10, 1), after: 0.25},
		{name: "a hedge", steps: []step{answers(50 * ms), fails(ms, codes.ResourceExhausted)}, alone: 0.5},
		{name: "a hedge that was turned away", steps: []step{answers(50 * ms), fails(ms, codes.ResourceExhausted, "-1")}},
		{name: "both", steps: []step{fails(20*ms, codes.ResourceExhausted), fails(20*ms, codes.ResourceExhausted)},
			after: 0.25},
		{name: "a hedge whose failure is the outcome, by a hedgingPolicy", steps: []step{silent(),
			fails(ms, codes.ResourceExhausted)}, option: hedge.WithServiceConfig(hedging(two)), alone: 0.5, after: 0.25},
		{name: "a loser that is cancelled", steps: []step{answers(50 * ms), answers(ms)}},
		{name: "a call that is not found", steps: []step{fails(ms, codes.NotFound)}},
	} {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			for _, before := range []bool{false, true} {
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), tc.option)
				want := cmp.Or(tc.alone, 1)
				if before {
					want = cmp.Or(tc.after, 0.5)
					_ = (&stub{steps: []step{answers(15 * ms), fails(ms, codes.ResourceExhausted)}}).callBy(d, t.Context(), s,
						wrapperspb.Int64(0))
				}
				_ = (&stub{steps: tc.steps}).callBy(d, t.Context(), s, wrapperspb.Int64(0), tc.calls...)
				time.Sleep(5 * time.Second) // the pause
				if got := s.Methods()[0].Guard; got.Share < want || got.Share > want+0.01 {
					t.Errorf("the share is %v, want %v; %s", got.Share, want, got.Reason)
				}
			}
		})
	}
}
