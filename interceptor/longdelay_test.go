package interceptor_test

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestRule11_TheLongestDelays sets delays that are too long to be added to a time, in every way
// there is. No hedge goes out because a call is slow. One goes out at once where a failure or a
// rejected answer makes it due; the next one would follow a delay later.
func TestRule11_TheLongestDelays(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	policy := hedge.WithServiceConfig(hedging(strings.Replace(four, "0.01s", "315576000000s", 1)))
	for _, tc := range []struct {
		name      string
		opt       hedge.Option
		call      grpc.CallOption
		ofFailure int64 // hedges that are due because the primary has failed
	}{
		{"Fixed", hedge.WithTrigger(hedge.Fixed(longest)), nil, 0},
		{"Fixed, a third", hedge.WithTrigger(hedge.Fixed(longest/3 + 1)), nil, 0},
		{"After", nil, hedge.After(longest), 0},
		{"WithWarmup", hedge.WithWarmup(10, longest), nil, 0},
		{"a hedgingPolicy", policy, nil, 1},
	} {
		for _, is := range []struct {
			name    string
			primary step
			opt     hedge.Option
			hedges  int64
		}{{"slow", silent(), nil, 0}, {"fails", fails(10*ms, codes.Unavailable), nil, tc.ofFailure},
			{"rejected", answers(10 * ms), goodBut(0), 1}} {
			hedgetest.Run(t, tc.name+", "+is.name, func(t *testing.T) {
				s := hedgetest.Fixed(t, never, tc.opt, is.opt, hedge.WithMaxHedges(3))
				st := &stub{steps: []step{is.primary, silent(), silent(), silent()}}
				_ = st.call(t.Context(), s, &wrapperspb.Int64Value{}, tc.call)
				if got := s.Stats().Hedges; got != is.hedges {
					t.Errorf("%d hedges, want %d", got, is.hedges)
				}
			})
		}
	}
}

// TestRule11_TheLongestLeastDelay learns under a WithMinDelay that is too long to be added to a time.
func TestRule11_TheLongestLeastDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithMinDelay(math.MaxInt64), hedge.WithBudgetPercent(400))
		for i := range 1000 {
			st := &stub{steps: []step{{after: ms + time.Duration(i%20/19)*time.Second}, {}, {}}}
			if err := st.call(t.Context(), s, &wrapperspb.Int64Value{}); err != nil || len(st.sent()) != 1 {
				t.Fatalf("%v, %d attempts", err, len(st.sent()))
			}
		}
	})
}
