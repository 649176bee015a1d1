package interceptor_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// scene is a call that is hedged after 10 ms, unless its options change the delay, and its expected
// course.
type scene struct {
	name     string
	opts     []hedge.Option
	config   string // a service config that says all about hedging
	call     []grpc.CallOption
	method   string        // the stub's usual one if it is empty
	request  any           // the same
	deadline time.Duration // 0: none
	cancel   time.Duration // 0: never
	steps    []step
	doors    []door // nil: all

	sent     []time.Duration // when attempts go out
	at       time.Duration   // when the caller has the outcome
	winner   int
	code     codes.Code
	panics   any
	rejected bool // the outcome is
}

// times returns the times in milliseconds.
func times(all ...int) (t []time.Duration) {
	for _, n := range all {
		t = append(t, time.Duration(n)*ms)
	}
	return t
}

// playScenes plays each scene by its doors.
func playScenes(t *testing.T, scenes []scene) {
	for _, sc := range scenes {
		if sc.doors == nil {
			sc.doors = doors
		}
		for _, d := range sc.doors {
			hedgetest.Run(t, sc.name+", "+string(d), func(t *testing.T) {
				scheduler := hedgetest.Fixed(t, 10*ms, append([]hedge.Option{hedge.WithGuard(false)}, sc.opts...)...)
				if sc.config != "" {
					scheduler = hedgetest.New(t, hedge.WithServiceConfig(sc.config), hedge.WithBudgetPercent(400))
				}
				sc.play(t, d, scheduler)
			})
		}
	}
}

// play makes the call by a door, and compares its course with the expected one. The caller's reply
// is -1 before.
func (sc scene) play(t *testing.T, d door, s *hedge.Scheduler) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if sc.deadline > 0 {
		ctx, cancel = context.WithTimeout(ctx, sc.deadline)
		defer cancel()
	}
	if sc.cancel > 0 {
		defer time.AfterFunc(sc.cancel, cancel).Stop()
	}
	var got observed
	var outcome stats.Outcome
	var err error
	var panicked any
	before, began, finished := s.Stats(), time.Now(), 0
	st, reply := &stub{steps: sc.steps, method: sc.method, request: sc.request}, wrapperspb.Int64(-1)
	func() {
		defer func() { panicked = recover() }()
		err = st.callBy(d, ctx, s, reply, append(sc.call, hedge.Report(&outcome), grpc.Header(&got.header),
			grpc.Trailer(&got.trailer), grpc.OnFinish(func(e error) {
				if finished++; sc.panics == nil && status.Code(e) != sc.code {
					t.Errorf("OnFinish(%v), want %v", e, sc.code)
				}
			}))...)
	}()
	at := time.Since(began)
	if p, ok := panicked.(*hedge.Panic); ok && sc.winner > 0 {
		if panicked = p.Value; !strings.Contains(string(p.Stack), "interceptor_test.") ||
			strings.Contains(string(p.Stack), ").callBy(") || !strings.Contains(p.Error(), string(p.Stack)) {
			t.Errorf("the hedge's stack is lost: %s", p.Stack)
		}
		if cause, ok := p.Value.(error); ok && (!errors.Is(p, cause) || !strings.Contains(p.Error(), cause.Error())) {
			t.Errorf("the hedge's error is lost: %v", p)
		}
	}
	synctest.Wait() // the losers have unwound, without time going on
	if at != sc.at || panicked != sc.panics || panicked == nil && (status.Code(err) != sc.code || finished != 1) {
		t.Errorf("ended after %v with %v, panic %v, OnFinish ran %d times", at, err, panicked, finished)
	}
	if panicked == nil {
		sc.checkParts(t, err, int(reply.Value), got)
		if outcome.Rejected != sc.rejected || outcome.Winner != sc.winner || outcome.Attempts != len(sc.sent) {
			t.Errorf("reported: %+v", outcome)
		}
	}
	var sent []time.Duration
	for n, a := range st.sent() {
		sent = append(sent, a.began.Sub(began))
		// Each attempt of a race has a context of its own. A stream that panics leaves it to the caller's.
		freed := len(sc.sent) == 1 || sc.panics != nil || a.ctx.Err() != nil
		if a.number != n || a.ended.IsZero() || a.ended.Sub(began) > sc.at || !freed { // rules 7 and 8
			t.Errorf("attempt %d, which says %d, ended after %v, its context with %v", n, a.number, a.ended.Sub(began),
				a.ctx.Err())
		}
	}
	if time.Sleep(time.Minute); !slices.Equal(sent, sc.sent) || len(st.sent()) != len(sent) { // rule 11
		t.Errorf("sent after %v, want %v; a minute later %d attempts", sent, sc.sent, len(st.sent()))
	}
	sc.checkCounts(t, s, before)
}

// checkParts checks that all parts of the outcome come from the winner: rules 1 and 6.
func (sc scene) checkParts(t *testing.T, err error, reply int, got observed) {
	t.Helper()
	number := strconv.Itoa(sc.winner)
	cut := sc.sent[sc.winner]+sc.steps[sc.winner].after > sc.at
	if err == nil && reply != sc.winner || err != nil && reply != -1 {
		t.Errorf("reply of attempt %d, want %s", reply, number)
	}
	if text := status.Convert(err).Message(); err != nil && !cut &&
		text != cmp.Or(sc.steps[sc.winner].text, "attempt "+number) {
		t.Errorf("the error is %q, want attempt %s's", text, number)
	}
	for name, md := range map[string]metadata.MD{"header": got.header, "trailer": got.trailer} {
		if says := first(md); says != number && !(cut && says == "") { // an attempt that was cut short says nothing
			t.Errorf("%s %v, want %s's", name, md, number)
		}
	}
}

func (sc scene) checkCounts(t *testing.T, s *hedge.Scheduler, before stats.Counts) {
	t.Helper()
	want := before
	want.Hedges += int64(len(sc.sent) - 1)
	if len(sc.sent) > 1 {
		want.Hedged++
		switch {
		case sc.panics != nil || !isAnswer(sc.code):
		case sc.winner > 0:
			want.HedgeWins++
		default:
			want.PrimaryWins++
		}
	}
	if got := s.Stats(); got.Hedges != want.Hedges || got.Hedged != want.Hedged || got.HedgeWins != want.HedgeWins ||
		got.PrimaryWins != want.PrimaryWins || sc.rejected && got.Rejected == 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func isAnswer(c codes.Code) bool {
	switch c {
	case codes.OK, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.Unauthenticated, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return true
	}
	return false
}
