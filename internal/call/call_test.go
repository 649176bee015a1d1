package call_test

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
)

const (
	ms     = time.Millisecond
	target = "dns:///test"
	method = "/pkg.Svc/Get"
)

// begin begins a call of target and method under ctx.
func begin(ctx context.Context, s *hedge.Scheduler, target, method string, opts ...grpc.CallOption) *call.Call {
	c := call.Begin((*registry.Registry)(s), ctx, target, method, nil, opts...)
	return &c
}

// TestRule13_HedgesThatFailTeachNothing has a hedge end in each way. Every error is final, so that
// a hedge that fails wins.
func TestRule13_HedgesThatFailTeachNothing(t *testing.T) {
	for _, tc := range []struct {
		name           string
		primary, hedge time.Duration
		err            error // of the hedge
		want           int64 // hedges known
	}{
		{name: "a failure", primary: time.Hour, hedge: ms, err: status.Error(codes.Unavailable, "dead")},
		{name: "a success", primary: time.Hour, hedge: ms, want: 1},
		{name: "an answer", primary: time.Hour, hedge: ms, err: status.Error(codes.NotFound, "an answer"), want: 1},
		{name: "cut short", primary: 20 * ms, hedge: time.Hour, want: 1},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithNonFatalCodes(), hedge.WithReadOnlyMethods(method), hedge.WithMaxHedges(1))
			_, err := hedge.Do(t.Context(), s, target, method, func(ctx context.Context) (int, error) {
				if simulation.AttemptOf(ctx) == 0 {
					return hedgetest.Taking(tc.primary)(ctx)
				}
				n, err := hedgetest.Taking(tc.hedge)(ctx)
				return n, cmp.Or(err, tc.err)
			})
			got := begin(t.Context(), s, target, method).Learner().Hedges(time.Now()).Total()
			if err != tc.err || got != tc.want {
				t.Errorf("the call ends with %v, and %d hedges are known; want %v and %d", err, got, tc.err, tc.want)
			}
		})
	}
}

// TestThrottle_CountsConcurrently loses no token, and keeps the count within its bounds.
func TestThrottle_CountsConcurrently(t *testing.T) {
	for _, tc := range []struct {
		name                string
		failures, successes int // each of eight goroutines has
		want                float64
	}{
		{name: "failures", failures: 50, want: 600},
		{name: "more failures than tokens", failures: 200},
		{name: "successes above the most", successes: 100, want: 1000},
		{name: "successes that make up for failures", failures: 10, successes: 80, want: 1000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := hedgetest.All(t, hedgetest.Throttle(1000, 0.125))
			each := func(n int, do func(*call.Call)) {
				var group sync.WaitGroup
				for range 8 {
					group.Go(func() {
						for range n {
							do(begin(t.Context(), s, target, method, hedge.Off()))
						}
					})
				}
				group.Wait()
			}
			each(tc.failures, func(c *call.Call) { c.End(call.Completion{Err: status.Error(codes.Unavailable, "")}) })
			each(tc.successes, func(c *call.Call) { c.End(call.Completion{}) })
			if got := s.Methods()[0]; got.ThrottleTokens != tc.want || got.ThrottleMax != 1000 {
				t.Errorf("%v of %v tokens, want %v", got.ThrottleTokens, got.ThrottleMax, tc.want)
			}
		})
	}
}

// TestThrottle_IsPerTarget: one target does not affect another, and its methods share one count.
func TestThrottle_IsPerTarget(t *testing.T) {
	s := hedgetest.All(t, hedgetest.Throttle(10, 1.0009)) // digits past the third decimal are dropped
	for _, c := range []struct{ target, method string }{{"a", "/x/A"}, {"a", "/x/B"}, {"b", "/x/A"}} {
		begin(t.Context(), s, c.target, c.method, hedge.Off()).End(call.Completion{Err: status.Error(codes.NotFound, ""),
			Trailer: metadata.Pairs("grpc-retry-pushback-ms", "-1")})
	}
	begin(t.Context(), s, "a", "/x/A", hedge.Off()).End(call.Completion{})
	for i, want := range []float64{9, 9, 9} {
		if row := s.Methods()[i]; row.ThrottleTokens != want {
			t.Errorf("%s%s: %v tokens, want %v", row.Target, row.Method, row.ThrottleTokens, want)
		}
	}
}

// TestEnd_HedgedCallsWithoutAnAnswer ends hedged calls without an answer. A call that fails, or
// misses its deadline, shows that hedges do not pay: the trigger expects less of them. A call that its
// caller gave up shows nothing.
func TestEnd_HedgedCallsWithoutAnAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		code   codes.Code
		gone   bool
		gaveUp bool
	}{
		"failed":          {codes.Unavailable, false, false},
		"missed deadline": {codes.DeadlineExceeded, true, false},
		"given up":        {codes.Canceled, true, true},
	} {
		end := func(c *call.Call, age time.Duration) {
			err := status.Error(tc.code, "")
			r := race.State{Hedges: 1, Err: err, DecidedAt: age, DeliveredAt: age}
			r.CallerGone, r.GaveUp, r.GoneAt = tc.gone, tc.gaveUp, age
			r.Attempts[0].EndedAt, r.Attempts[0].Event = age, race.Event{Kind: race.Ended, End: race.NonFatal, Err: err}
			r.Attempts[1] = r.Attempts[0]
			r.Attempts[1].SentAt = c.Delay
			c.Ended(&r)
		}
		hedgetest.Run(t, name, func(t *testing.T) {
			s := hedgetest.All(t)
			learn := func() {
				for n := range 2000 {
					latency := 10 * ms
					if n%20 == 0 {
						latency = 500 * ms
					}
					begin(t.Context(), s, target, method).Learner().PrimaryEnded(time.Now(), latency, true)
					time.Sleep(ms)
				}
			}
			learn()
			for range 100 {
				end(begin(t.Context(), s, target, method), 400*ms)
			}
			learn()
			if kept := s.Methods()[0].Choice.Kept; kept > 0.5 != tc.gaveUp {
				t.Errorf("%.2f of the predicted savings are kept", kept)
			}
		})
	}
}

// TestThrottle_CountsAFailureOnce has the throttle count a failure when the next hedge is due, and once.
func TestThrottle_CountsAFailureOnce(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "")
	for name, tc := range map[string]struct {
		state  race.State
		want   float64
		pushed int64
	}{
		"a failure":                        {race.State{}, 9, 1},
		"one that came as the caller left": {race.State{CallerGone: true, GaveUp: true, GoneAt: ms}, 10, 0},
		"one before the caller left":       {race.State{CallerGone: true, GaveUp: true, GoneAt: 2 * ms}, 9, 1},
	} {
		s := hedgetest.All(t, hedgetest.Throttle(10, 0.1))
		c := begin(t.Context(), s, target, method, hedge.After(0))
		primary := &tc.state.Attempts[0]
		tc.state.Err, primary.EndedAt = unavailable, ms
		primary.Event = race.Event{Kind: race.Ended, End: race.NonFatal, Err: unavailable, Pushback: race.PushbackAfter}
		c.Admit(1, 1, &tc.state)
		due := s.Methods()[0].ThrottleTokens
		c.Ended(&tc.state)
		if got := s.Methods()[0]; due != tc.want || got.ThrottleTokens != tc.want || got.PushedBack != tc.pushed {
			t.Errorf("%s: %v tokens when a hedge is due, and %v at the end; %d pushed back; want %v, %d", name, due,
				got.ThrottleTokens, got.PushedBack, tc.want, tc.pushed)
		}
	}
}
