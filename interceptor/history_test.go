package interceptor_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
)

// These are bugs of another implementation of gRPC's hedging, by the number under which its users reported them.

// inAndOutOfTime makes calls of a method with a policy: one after the other in virtual time, where a deadlock leaves nothing that
// runs and so fails the test at once, and many at a time in real time.
func inAndOutOfTime(t *testing.T, name, policy string, call func(t *testing.T, s *hedge.Scheduler, i int)) {
	check := func(t *testing.T, s *hedge.Scheduler) {
		if got := s.Stats(); got.LoserPanics != 0 || got.HedgeWins+got.PrimaryWins > got.Hedged {
			t.Errorf("%+v", got)
		}
	}
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := configured(t, hedging(policy))
			for i := range 100 {
				call(t, s, i)
			}
			synctest.Wait()
			check(t, s)
		})
	})
	t.Run(name+", under load", func(t *testing.T) {
		s := configured(t, hedging(policy))
		var calls sync.WaitGroup
		for i := range 300 {
			calls.Go(func() { call(t, s, i) })
		}
		calls.Wait()
		check(t, s)
	})
}

// TestGRPCJava9185: a commit raced an attempt that was still starting, under load. Here each attempt starts at the very
// instant at which another commits the call, or fails and so has another one start.
func TestGRPCJava9185_ACommitMeetsAnAttemptThatStarts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy string
		steps  []step
	}{
		{"all at once, and each answers at once", `{"maxAttempts": 5}`, []step{{}, {}, {}, {}, {}}},
		{"the original answers when a hedge is due", four, []step{answers(10 * ms), {}, {}, {}}},
		{"a hedge answers when the next is due", four, []step{silent(), answers(10 * ms), {}, {}}},
		{"all fail when the next is due", four, slices.Repeat([]step{fails(10*ms, codes.Unavailable)}, 4)},
		{"all fail at once", `{"maxAttempts": 5, "nonFatalStatusCodes": ["UNAVAILABLE"]}`, slices.Repeat([]step{fails(0, codes.Unavailable)}, 5)},
		{"a pushback ends when an answer comes", four, []step{answers(13 * ms), fails(2*ms, codes.Unavailable, "1"), {}, {}}},
	} {
		inAndOutOfTime(t, tc.name, tc.policy, func(t *testing.T, s *hedge.Scheduler, _ int) {
			finished := 0
			reply := wrapperspb.Int64(-1)
			err := (&stub{steps: tc.steps}).call(t.Context(), s, reply, grpc.OnFinish(func(error) { finished++ }))
			if failed := tc.steps[len(tc.steps)-1].code != codes.OK; (err != nil) != failed || finished != 1 {
				t.Errorf("%v, OnFinish ran %d times", err, finished)
			}
			if err == nil && (reply.Value < 0 || reply.Value >= int64(len(tc.steps))) {
				t.Errorf("reply %v", reply)
			}
		})
	}
}

// TestGRPCJava10314: cancelling one attempt while another starts took two locks in opposite orders, a deadlock after
// hours. Here a lock is taken by whatever starts, is cancelled, or ends, all at one instant, and a caller that gives up
// comes in between.
func TestGRPCJava10314_CancellingMeetsStarting(t *testing.T) {
	for _, answer := range []codes.Code{codes.OK, codes.Unavailable, codes.Internal} {
		var mu sync.Mutex
		locks := map[*hedge.Scheduler]*locking{}
		inAndOutOfTime(t, answer.String(), four, func(t *testing.T, s *hedge.Scheduler, i int) {
			mu.Lock()
			if locks[s] == nil {
				locks[s] = &locking{answer: answer, scheduler: s}
			}
			l := locks[s]
			mu.Unlock()
			l.call(t, i%3 == 0)
		})
	}
}

// locking stands for a transport with one lock. Its attempts all end when the fourth hedge would be due.
type locking struct {
	answer    codes.Code
	scheduler *hedge.Scheduler
	mu        sync.Mutex
}

func (l *locking) invoke(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
	l.mu.Lock() // as it starts
	n := previousAttempts(ctx)
	l.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { // as it is cancelled
		l.mu.Lock()
		defer l.mu.Unlock()
		_ = l.scheduler.Stats()
	})
	defer stop()
	timer := time.NewTimer(time.Duration(40-10*n) * ms)
	defer timer.Stop()
	err := status.Error(l.answer, "")
	select {
	case <-timer.C:
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	}
	l.mu.Lock() // as it ends
	defer l.mu.Unlock()
	for _, opt := range opts {
		if finish, ok := opt.(grpc.OnFinishCallOption); ok {
			finish.OnFinish(err)
		}
	}
	return err
}

func (l *locking) call(t *testing.T, givesUp bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if givesUp { // at that instant too
		defer time.AfterFunc(40*ms, cancel).Stop()
	}
	finished := 0
	err := interceptor.Unary(l.scheduler)(ctx, "/test.Service/Method", wrapperspb.Int64(1), wrapperspb.Int64(1), nil, l.invoke,
		grpc.OnFinish(func(error) { finished++ }))
	if code := status.Code(err); code != l.answer && (!givesUp || code != codes.Canceled) || finished != 1 {
		t.Errorf("%v, OnFinish ran %d times", err, finished)
	}
}
