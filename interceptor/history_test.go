package interceptor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge/interceptor"
)

// These are bugs of another implementation of gRPC's hedging, by the number under which its users reported them.

// TestGRPCJava7222: the first attempt failed UNAVAILABLE while throttled, and the call hung until its deadline.
func TestGRPCJava7222_AThrottledCallFailsAtOnce(t *testing.T) {
	for _, delay := range []string{"0s", "0.01s", "10s"} {
		synctest.Test(t, func(t *testing.T) {
			s := configured(t, hedging(`{"maxAttempts": 3, "hedgingDelay": "`+delay+`", "nonFatalStatusCodes": ["UNAVAILABLE"]}`,
				`, "retryThrottling": {"maxTokens": 1, "tokenRatio": 0.001}`))
			fail := func() error { // the throttle's one token goes with the first
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				st := &stub{steps: []step{fails(ms, codes.Unavailable), fails(ms, codes.Unavailable), fails(ms, codes.Unavailable)}}
				return st.call(ctx, s, wrapperspb.Int64(0))
			}
			if err := fail(); status.Code(err) != codes.Unavailable {
				t.Error(err)
			}
			began := time.Now()
			if err := fail(); status.Code(err) != codes.Unavailable || time.Since(began) != ms {
				t.Errorf("delay %s: %v after %v, want UNAVAILABLE after 1ms", delay, err, time.Since(began))
			}
			if row := s.Targets()[0]; row.ThrottleTokens != 0 || row.Throttled == 0 {
				t.Errorf("%+v", row)
			}
		})
	}
}

// TestGRPCJava10145: a non-fatal status did not send the next hedge at once.
func TestGRPCJava10145_ANonFatalStatusSendsTheNextAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := configured(t, hedging(`{"maxAttempts": 4, "hedgingDelay": "10s", "nonFatalStatusCodes": ["UNAVAILABLE"]}`))
		st := &stub{steps: []step{fails(ms, codes.Unavailable), fails(ms, codes.Unavailable), fails(ms, codes.Unavailable), answers(ms)}}
		began := time.Now()
		if err := st.call(t.Context(), s, wrapperspb.Int64(0)); err != nil || time.Since(began) != 4*ms {
			t.Errorf("%v after %v, want 4ms", err, time.Since(began))
		}
	})
}

// TestGRPCJava9185: a commit raced an attempt that was still starting. Here each attempt starts at the very instant
// at which another commits the call, or fails and so has another one start.
func TestGRPCJava9185_ACommitMeetsAnAttemptThatStarts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy string
		steps  []step
	}{
		{"all at once, and each answers at once", `{"maxAttempts": 5}`, []step{{}, {}, {}, {}, {}}},
		{"the original answers when a hedge is due", four, []step{answers(10 * ms), {}, {}, {}}},
		{"a hedge answers when the next is due", four, []step{silent(), answers(10 * ms), {}, {}}},
		{"all fail when the next is due", four, []step{fails(10*ms, codes.Unavailable), fails(10*ms, codes.Unavailable), fails(10*ms, codes.Unavailable), fails(10*ms, codes.Unavailable)}},
		{"all fail at once", `{"maxAttempts": 5, "nonFatalStatusCodes": ["UNAVAILABLE"]}`, []step{
			fails(0, codes.Unavailable), fails(0, codes.Unavailable), fails(0, codes.Unavailable), fails(0, codes.Unavailable), fails(0, codes.Unavailable)}},
		{"a pushback ends when an answer comes", four, []step{answers(13 * ms), fails(2*ms, codes.Unavailable, "1"), {}, {}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := configured(t, hedging(tc.policy))
				var calls sync.WaitGroup
				for range 300 {
					calls.Go(func() {
						finished := 0
						st := &stub{steps: tc.steps}
						reply := wrapperspb.Int64(-1)
						err := st.call(t.Context(), s, reply, grpc.OnFinish(func(error) { finished++ }))
						if failed := tc.steps[len(tc.steps)-1].code != codes.OK; (err != nil) != failed || finished != 1 {
							t.Errorf("%v, OnFinish ran %d times", err, finished)
						}
						if err == nil && (reply.Value < 0 || reply.Value >= int64(len(tc.steps))) {
							t.Errorf("reply %v", reply)
						}
					})
				}
				calls.Wait()
				synctest.Wait()
				if got := s.Stats(); got.Calls != 300 || got.LoserPanics != 0 || got.HedgeWins+got.PrimaryWins > got.Hedged {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// TestGRPCJava10314: cancelling one attempt while another starts took two locks in opposite orders, a deadlock after
// hours. Here a lock is taken by whatever starts, and held by whatever is cancelled or ends, all at one instant; a
// deadlock would leave the bubble with nothing that runs, which fails the test at once.
func TestGRPCJava10314_CancellingMeetsStarting(t *testing.T) {
	for _, answer := range []codes.Code{codes.OK, codes.Unavailable, codes.Internal} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := configured(t, hedging(four))
				unary := interceptor.Unary(s)
				var transport sync.Mutex
				invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
					transport.Lock() // as it starts
					n := previousAttempts(ctx)
					transport.Unlock()
					stop := context.AfterFunc(ctx, func() { // as it is cancelled
						transport.Lock()
						defer transport.Unlock()
						_ = s.Stats()
					})
					defer stop()
					timer := time.NewTimer(time.Duration(40-10*n) * ms) // all at the instant at which another is due
					defer timer.Stop()
					var err error
					select {
					case <-timer.C:
						err = status.Error(answer, "")
					case <-ctx.Done():
						err = status.FromContextError(ctx.Err()).Err()
					}
					transport.Lock() // as it ends
					defer transport.Unlock()
					for _, opt := range opts {
						if finish, ok := opt.(grpc.OnFinishCallOption); ok {
							finish.OnFinish(err)
						}
					}
					return err
				}
				var calls sync.WaitGroup
				for i := range 300 {
					calls.Go(func() {
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						if i%3 == 0 { // the caller cancels at that instant too
							defer time.AfterFunc(40*ms, cancel).Stop()
						}
						finished := 0
						err := unary(ctx, "/test.Service/Method", wrapperspb.Int64(1), wrapperspb.Int64(1), nil, invoke,
							grpc.OnFinish(func(error) { finished++ }))
						if code := status.Code(err); code != answer && (i%3 > 0 || code != codes.Canceled) || finished != 1 {
							t.Errorf("%v, OnFinish ran %d times", err, finished)
						}
					})
				}
				calls.Wait()
			})
		})
	}
}
