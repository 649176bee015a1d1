package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestRule02_Matrix pairs every outcome of a primary, or a hedge, with a success, an answer and a
// failure of the other, in both orders, of a method that may change something and of one that only
// reads. The first deciding outcome ends
// the call: an answer of the primary, a success of the hedge, and any answer of the hedge where the
// method only reads. Without one the primary's error does, when both have failed.
func TestRule02_Matrix(t *testing.T) {
	const early, late = 20 * ms, 40 * ms
	var scenes []scene
	typical := func(c codes.Code) bool { return c == codes.OK || c == codes.NotFound || c == codes.Unavailable }
	for primary := codes.OK; primary <= codes.Unauthenticated; primary++ {
		for hedged := codes.OK; hedged <= codes.Unauthenticated; hedged++ {
			if !typical(primary) && !typical(hedged) {
				continue
			}
			for _, primaryFirst := range []bool{true, false} {
				for _, reads := range []bool{true, false} {
					primaryAt, hedgeAt := late, early
					if primaryFirst {
						primaryAt, hedgeAt = early, late
					}
					sc := scene{
						name:  fmt.Sprintf("%v,%v,primaryFirst=%v,reads=%v", primary, hedged, primaryFirst, reads),
						opts:  []hedge.Option{hedge.WithMaxHedges(1)},
						steps: []step{fails(primaryAt, primary), fails(hedgeAt-10*ms, hedged)},
						sent:  times(0, 10), at: late, code: primary,
					}
					if reads {
						sc.opts = append(sc.opts, hedge.WithReadOnlyMethods("/test.Service/Method"))
					}
					switch decides := hedged == codes.OK || reads && isAnswer(hedged); {
					case isAnswer(primary) && (primaryFirst || !decides):
						sc.at = primaryAt
					case decides:
						sc.at, sc.code, sc.winner = hedgeAt, hedged, 1
					}
					scenes = append(scenes, sc)
				}
			}
		}
	}
	playScenes(t, scenes)
}

// TestRule02_WhoseHedgesMayAnswerWithAnError has a hedge answer NOT_FOUND while the primary is
// about to succeed.
func TestRule02_WhoseHedgesMayAnswerWithAnError(t *testing.T) {
	policy := hedging(`{"maxAttempts": 2, "hedgingDelay": "0.01s"}`)
	for _, tc := range []struct {
		name   string
		method string
		opts   []hedge.Option
		want   codes.Code
	}{
		{"no idempotency level", testpb.TestService_Unary_FullMethodName, nil, codes.OK},
		{"IDEMPOTENT", testpb.TestService_UnaryIdempotent_FullMethodName, nil, codes.OK},
		{"NO_SIDE_EFFECTS", testpb.TestService_UnaryNoSideEffects_FullMethodName, nil, codes.NotFound},
		{"no descriptor", "/test.Service/Method", nil, codes.OK},
		{"WithMethods", "/test.Service/Method", []hedge.Option{hedge.WithMethods("/test.Service/*")}, codes.OK},
		{"WithReadOnlyMethods", "/test.Service/Method", []hedge.Option{hedge.WithReadOnlyMethods("/test.Service/*")},
			codes.NotFound},
		{"a hedgingPolicy", "/test.Service/Method", []hedge.Option{hedge.WithServiceConfig(policy)}, codes.NotFound},
		{"NOT_FOUND named non-fatal", testpb.TestService_UnaryNoSideEffects_FullMethodName,
			[]hedge.Option{hedge.WithNonFatalCodes(codes.NotFound)}, codes.OK},
	} {
		sc := scene{name: tc.name, opts: append(tc.opts, hedge.WithMaxHedges(1)), method: tc.method, doors: doors[:1],
			steps: []step{answers(50 * ms), fails(5*ms, codes.NotFound)}, sent: times(0, 10), at: 50 * ms, code: tc.want}
		if tc.want != codes.OK {
			sc.at, sc.winner = 15*ms, 1
		}
		playScenes(t, []scene{sc})
	}
}

func TestRule02_NonFatalCodesReplaceTheDefault(t *testing.T) {
	reads := hedge.WithReadOnlyMethods("/test.Service/Method")
	sent := times(0, 10)
	var scenes []scene
	for _, tc := range []struct {
		name     string
		nonFatal []codes.Code
		failure  codes.Code // of the attempt that ends first; the other answers
		want     codes.Code // if the primary fails, or a hedge of a read-only method
	}{
		{"named code goes on", []codes.Code{codes.NotFound}, codes.NotFound, codes.OK},
		{"other code ends the race", []codes.Code{codes.NotFound}, codes.Unavailable, codes.Unavailable},
		{"empty list, every error ends it", nil, codes.Unavailable, codes.Unavailable},
		{"undefined code is Unknown", []codes.Code{codes.Unknown}, codes.Code(99), codes.OK},
	} {
		opts := []hedge.Option{hedge.WithMaxHedges(1), hedge.WithNonFatalCodes(tc.nonFatal...)}
		ofHedge := []step{answers(50 * ms), fails(5*ms, tc.failure)}
		primary := scene{name: "of the primary", steps: []step{fails(15*ms, tc.failure), answers(50 * ms)}, at: 60 * ms,
			winner: 1}
		readOnly := scene{name: "of a hedge that only reads", steps: ofHedge, opts: []hedge.Option{reads}, at: 50 * ms}
		if tc.want != codes.OK {
			primary.at, primary.code, primary.winner = 15*ms, tc.failure, 0
			readOnly.at, readOnly.code, readOnly.winner = 15*ms, tc.failure, 1
		}
		for _, sc := range []scene{primary, {name: "of a hedge", steps: ofHedge, at: 50 * ms}, readOnly} {
			sc.name, sc.opts, sc.sent = tc.name+", "+sc.name, append(opts, sc.opts...), sent
			scenes = append(scenes, sc)
		}
	}
	playScenes(t, scenes)
}

func TestRule03_PrimaryFailsBeforeAnyHedge(t *testing.T) {
	playScenes(t, []scene{{name: "once", steps: []step{fails(9*ms, codes.Unavailable), {}}, sent: times(0), at: 9 * ms,
		code: codes.Unavailable}})
}

func TestRule04_DeadlineAndCancelBoundTheRace(t *testing.T) {
	var scenes []scene
	for _, sc := range []scene{
		{name: "both silent", steps: []step{silent(), silent()}},
		{name: "primary failed, hedge silent", steps: []step{fails(15*ms, codes.Unavailable), silent()},
			code: codes.Unavailable},
		{name: "hedge failed, primary silent", steps: []step{silent(), fails(ms, codes.Unavailable)}},
	} {
		sc.opts, sc.sent, sc.at = []hedge.Option{hedge.WithMaxHedges(1)}, times(0, 10), 30*ms
		cancelled, late := sc, sc
		cancelled.name, cancelled.cancel, cancelled.code = sc.name+", cancelled", 30*ms, max(sc.code, codes.Canceled)
		late.name, late.deadline, late.code = sc.name+", deadline", 30*ms, max(sc.code, codes.DeadlineExceeded)
		scenes = append(scenes, cancelled, late)
	}
	playScenes(t, scenes)
}

func TestRule09_PanicOfAHedgeSurfacesOnTheCaller(t *testing.T) {
	value := errors.New("a value of its own")
	panics := func(after time.Duration) step { return step{after: after, panics: value} }
	playScenes(t, []scene{
		{name: "while the primary runs", steps: []step{answers(50 * ms), panics(5 * ms), silent()}, winner: 1, at: 15 * ms,
			sent: times(0, 10), panics: value},
		{name: "after the primary failed", steps: []step{fails(12*ms, codes.Unavailable), panics(5 * ms), silent()},
			winner: 1, at: 15 * ms, sent: times(0, 10), panics: value},
		{name: "the primary, before a hedge is due", steps: []step{panics(5 * ms)}, at: 5 * ms, sent: times(0),
			panics: value},
		{name: "the primary itself", steps: []step{panics(15 * ms), silent()}, at: 15 * ms, sent: times(0, 10),
			panics: value},
	})
}

// TestRule04_ADeafHedgeHoldsNobodyUp has a hedge below which something does not listen to its
// context.
func TestRule04_ADeafHedgeHoldsNobodyUp(t *testing.T) {
	for _, tc := range []struct {
		name    string
		primary step
		want    time.Duration
	}{
		{"the caller's deadline passes", fails(15*ms, codes.Unavailable), 30 * ms},
		{"the primary answers", answers(20 * ms), 20 * ms},
	} {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
			defer cancel()
			began, st := time.Now(), &stub{steps: []step{tc.primary, {after: time.Second, deaf: true}}}
			err := st.callBy(d, ctx, hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), wrapperspb.Int64(-1))
			if status.Code(err) != tc.primary.code || time.Since(began) != tc.want {
				t.Errorf("%v after %v, want %v after %v", err, time.Since(began), tc.primary.code, tc.want)
			}
			time.Sleep(2 * time.Second)
		})
	}
}

func TestRule09_PanicOfALoserIsCounted(t *testing.T) {
	late := func(after time.Duration) step { return step{after: after, deaf: true, panics: "too late"} }
	for name, steps := range map[string][]step{"a hedge": {answers(20 * ms), late(50 * ms)},
		"the primary": {late(50 * ms), answers(ms)}} {
		eachDoor(t, name, func(t *testing.T, d door) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
			if err := (&stub{steps: steps}).callBy(d, t.Context(), s, wrapperspb.Int64(-1)); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			if got := s.Stats(); got.LoserPanics != 1 || got.PrimaryWins+got.HedgeWins != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestRule09_GoexitOfAHedgeEndsTheCaller ends the goroutine of a hedge, as t.FailNow does: in the
// attempt, or in the user's function.
func TestRule09_GoexitOfAHedgeEndsTheCaller(t *testing.T) {
	for _, exitsBelow := range []bool{true, false} {
		eachDoor(t, fmt.Sprint("below ", exitsBelow), func(t *testing.T, d door) {
			if d == headersFirst && !exitsBelow {
				return // headers are not judged
			}
			exits := func(context.Context, string, any, error) bool { runtime.Goexit(); return true }
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithAcceptable(exits))
			returned, ended := false, make(chan struct{})
			go func() {
				defer close(ended)
				st := &stub{steps: []step{silent(), {exits: exitsBelow}}}
				_ = st.callBy(d, t.Context(), s, wrapperspb.Int64(-1))
				returned = true
			}()
			<-ended
			if returned {
				t.Error("the call returned, where an unhedged one would have ended its goroutine")
			}
		})
	}
}

func TestRule11_HedgesGoOutADelayApart(t *testing.T) {
	scenes := []scene{
		{name: "learned", sent: times(0, 10, 20, 30, 40)},
		{name: "After", call: []grpc.CallOption{hedge.After(3 * ms)}, sent: times(0, 3, 6, 9, 12)},
		{name: "After(0)", call: []grpc.CallOption{hedge.After(0)}, sent: times(0, 0, 0, 0, 0)},
		{name: "After(-1)", call: []grpc.CallOption{hedge.After(-1)}, sent: times(0, 0, 0, 0, 0)},
		{name: "Off", call: []grpc.CallOption{hedge.Off()}, sent: times(0)},
		{name: "the last counts", call: []grpc.CallOption{hedge.Off(), hedge.After(5 * ms)}, sent: times(0, 5, 10, 15, 20)},
	}
	for i := range scenes {
		scenes[i].opts, scenes[i].at = []hedge.Option{hedge.WithMaxHedges(4)}, 100*ms
		scenes[i].steps = []step{answers(100 * ms), silent(), silent(), silent(), silent()}
	}
	playScenes(t, scenes)
}

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
		for name, is := range map[string]struct {
			primary step
			opt     hedge.Option
			hedges  int64
		}{"slow": {silent(), nil, 0}, "fails": {fails(10*ms, codes.Unavailable), nil, tc.ofFailure},
			"rejected": {answers(10 * ms), goodBut(0), 1}} {
			hedgetest.Run(t, tc.name+", "+name, func(t *testing.T) {
				s := hedgetest.Fixed(t, never, tc.opt, is.opt, hedge.WithMaxHedges(3))
				st := &stub{steps: []step{is.primary, silent(), silent(), silent()}}
				_ = st.callBy(unary, t.Context(), s, &wrapperspb.Int64Value{}, tc.call)
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
			if err := st.callBy(unary, t.Context(), s, &wrapperspb.Int64Value{}); err != nil || len(st.sent()) != 1 {
				t.Fatalf("%v, %d attempts", err, len(st.sent()))
			}
		}
	})
}
