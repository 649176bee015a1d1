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
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// TestRule02_Matrix pairs every outcome of a primary, or a hedge, with a success, an answer and a
// failure of the other, in both orders, of a method that may change something and of one that only
// reads. The first deciding outcome ends the call: an answer of the primary, a success of the hedge,
// and any answer of the hedge where the method only reads. Without one the primary's error does, when
// both have failed.
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
						opts:  with{hedge.WithMaxHedges(1)},
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
		{name: "no idempotency level", method: testpb.TestService_Unary_FullMethodName},
		{name: "IDEMPOTENT", method: testpb.TestService_UnaryIdempotent_FullMethodName},
		{name: "NO_SIDE_EFFECTS", method: testpb.TestService_UnaryNoSideEffects_FullMethodName, want: codes.NotFound},
		{name: "no descriptor", method: "/test.Service/Method"},
		{name: "WithMethods", method: "/test.Service/Method", opts: with{hedge.WithMethods("/test.Service/*")}},
		{name: "WithReadOnlyMethods", method: "/test.Service/Method",
			opts: with{hedge.WithReadOnlyMethods("/test.Service/*")}, want: codes.NotFound},
		{name: "a hedgingPolicy", method: "/test.Service/Method", opts: with{hedge.WithServiceConfig(policy)},
			want: codes.NotFound},
		{name: "NOT_FOUND named non-fatal", method: testpb.TestService_UnaryNoSideEffects_FullMethodName,
			opts: with{hedge.WithNonFatalCodes(codes.NotFound)}},
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
	only := func(nonFatal ...codes.Code) []hedge.Option {
		return with{hedge.WithMaxHedges(1), hedge.WithNonFatalCodes(nonFatal...)}
	}
	const unavailable = codes.Unavailable
	reads := hedge.WithReadOnlyMethods("/test.Service/Method")
	scenes := []scene{
		{name: "a named code of the primary goes on", opts: only(codes.NotFound),
			steps: []step{fails(15*ms, codes.NotFound), answers(50 * ms)}, at: 60 * ms, winner: 1},
		{name: "another one does not", opts: only(codes.NotFound),
			steps: []step{fails(15*ms, unavailable), answers(50 * ms)}, at: 15 * ms, code: unavailable},
		{name: "nor any, of an empty list", opts: only(),
			steps: []step{fails(15*ms, unavailable), answers(50 * ms)}, at: 15 * ms, code: unavailable},
		{name: "an undefined code is Unknown", opts: only(codes.Unknown),
			steps: []step{fails(15*ms, codes.Code(99)), answers(50 * ms)}, at: 60 * ms, winner: 1},
		{name: "a hedge goes on", opts: only(), steps: []step{answers(50 * ms), fails(5*ms, unavailable)}, at: 50 * ms},
		{name: "a hedge that only reads does not", opts: append(only(), reads),
			steps: []step{answers(50 * ms), fails(5*ms, unavailable)}, at: 15 * ms, code: unavailable, winner: 1},
		{name: "unless the code is named", opts: append(only(codes.NotFound), reads),
			steps: []step{answers(50 * ms), fails(5*ms, codes.NotFound)}, at: 50 * ms},
	}
	for i := range scenes {
		scenes[i].sent = times(0, 10)
	}
	playScenes(t, scenes)
}

func TestRule04_DeadlineAndCancelBoundTheRace(t *testing.T) {
	var scenes []scene
	for _, sc := range []scene{
		{name: "both silent", steps: []step{silent(), silent()}},
		{name: "primary failed, hedge silent", steps: []step{fails(15*ms, codes.Unavailable), silent()},
			code: codes.Unavailable},
		{name: "hedge failed, primary silent", steps: []step{silent(), fails(ms, codes.Unavailable)}},
	} {
		sc.opts, sc.sent, sc.at = with{hedge.WithMaxHedges(1)}, times(0, 10), 30*ms
		cancelled, late := sc, sc
		cancelled.name, cancelled.cancel, cancelled.code = sc.name+", cancelled", 30*ms, max(sc.code, codes.Canceled)
		late.name, late.deadline, late.code = sc.name+", deadline", 30*ms, max(sc.code, codes.DeadlineExceeded)
		scenes = append(scenes, cancelled, late)
	}
	playScenes(t, scenes)
}

func TestRule09_PanicOfAHedgeSurfacesOnTheCaller(t *testing.T) {
	v := errors.New("a value of its own")
	panics := func(after time.Duration) step { return step{after: after, panics: v} }
	trace := hedge.WithTrace(&hedge.Trace{HedgeHeldBack: func(stats.HedgeHeldBack) { panic(v) }})
	playScenes(t, []scene{
		{name: "while it is considered", opts: with{hedge.WithBudgetPercent(1), trace},
			steps: []step{silent(), silent()}, winner: 2, at: 20 * ms, sent: times(0, 10), panics: v},
		{name: "while the primary runs", steps: []step{answers(50 * ms), panics(5 * ms), silent()}, winner: 1, at: 15 * ms,
			sent: times(0, 10), panics: v},
		{name: "after the primary failed", steps: []step{fails(12*ms, codes.Unavailable), panics(5 * ms), silent()},
			winner: 1, at: 15 * ms, sent: times(0, 10), panics: v},
		{name: "the primary, before a hedge is due", steps: []step{panics(5 * ms)}, at: 5 * ms, sent: times(0), panics: v},
		{name: "the primary itself", steps: []step{panics(15 * ms), silent()}, at: 15 * ms, sent: times(0, 10), panics: v},
	})
}

// TestRule04_AHedgeThatIgnoresItsContextDelaysNothing has an interceptor inside that ignores the
// hedge's context.
func TestRule04_AHedgeThatIgnoresItsContextDelaysNothing(t *testing.T) {
	deaf, one := step{after: time.Second, deaf: true}, with{hedge.WithMaxHedges(1)}
	playScenes(t, []scene{
		{name: "the caller's deadline passes", opts: one, steps: []step{fails(15*ms, codes.Unavailable), deaf},
			deadline: 30 * ms, sent: times(0, 10), at: 30 * ms, code: codes.Unavailable},
		{name: "the primary answers", opts: one, steps: []step{answers(20 * ms), deaf}, sent: times(0, 10), at: 20 * ms},
	})
}

func TestRule09_PanicOfALoserIsCounted(t *testing.T) {
	deaf, one := step{after: 50 * ms, deaf: true, panics: "too late"}, with{hedge.WithMaxHedges(1)}
	playScenes(t, []scene{
		{name: "a hedge", opts: one, steps: []step{answers(20 * ms), deaf}, sent: times(0, 10), at: 20 * ms},
		{name: "the primary, for which the call waits", opts: one, steps: []step{deaf, answers(ms)}, sent: times(0, 10),
			at: 50 * ms, winner: 1},
	})
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
				t.Error("the call returned; an unhedged call would have ended its goroutine")
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
		scenes[i].opts, scenes[i].at = with{hedge.WithMaxHedges(4)}, 100*ms
		scenes[i].steps = []step{answers(100 * ms), silent(), silent(), silent(), silent()}
	}
	playScenes(t, scenes)
}

// TestRule11_TheLongestDelays sets delays that are too long to be added to a time, in every way
// there is. No hedge goes out because a call is slow. One goes out at once where a failure or a
// rejected answer makes it due.
func TestRule11_TheLongestDelays(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	fixed := hedge.WithTrigger(hedge.Fixed(longest))
	policy := hedging(strings.Replace(four, "0.01s", "315576000000s", 1))
	scenes := []scene{
		{name: "Fixed", opts: with{fixed}},
		{name: "Fixed, a third", opts: with{hedge.WithTrigger(hedge.Fixed(longest/3 + 1))}},
		{name: "After", call: []grpc.CallOption{hedge.After(longest)}},
		{name: "WithWarmup", opts: with{hedge.WithWarmup(10, longest)}},
		{name: "a hedgingPolicy", config: policy},
	}
	for i := range scenes {
		scenes[i].steps, scenes[i].sent, scenes[i].at = []step{answers(time.Minute)}, times(0), time.Minute
	}
	playScenes(t, append(scenes,
		scene{name: "a failure", config: policy, steps: []step{fails(10*ms, codes.Unavailable), answers(ms)},
			sent: times(0, 10), at: 11 * ms, winner: 1},
		scene{name: "a rejected answer", opts: with{fixed, goodBut(0)}, doors: doors[:2],
			steps: []step{answers(10 * ms), answers(ms)}, sent: times(0, 10), at: 11 * ms, winner: 1}))
}

// TestRule11_TheLongestMinDelay learns with a WithMinDelay that is too long to be added to a time.
func TestRule11_TheLongestMinDelay(t *testing.T) {
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

// hedging is a service config in which the stub's method, /test.Service/Method, has this policy.
func hedging(policy string, more ...string) string {
	return `{"methodConfig": [{"name": [{"service": "test.Service", "method": "Method"}], "hedgingPolicy": ` +
		policy + `}]` + strings.Join(more, "") + `}`
}

const (
	// policies of four attempts or two, 10 ms apart, for which UNAVAILABLE, or INTERNAL too, is
	// non-fatal
	four = `{"maxAttempts": 4, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}`
	both = `{"maxAttempts": 2, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE", "INTERNAL"]}`
	two  = `{"maxAttempts": 2, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}`
)

// TestGRPCDefinition has rows for the sentences about clients in gRPC's definition of hedging: when
// each attempt is sent, and when and how the call ends. The tests of internal/rpc cover
// names and values in a service config; the tests of internal/race cover all orders of events.
func TestGRPCDefinition(t *testing.T) {
	const unavailable, internal = codes.Unavailable, codes.Internal
	broken := step{after: ms, code: unavailable, broken: true}
	playScenes(t, []scene{
		// Service config.
		{name: "maxAttempts includes the original", config: hedging(two),
			steps: []step{answers(90 * ms), silent()}, sent: times(0, 10), at: 90 * ms},
		{name: "hedgingDelay absent means 0: all attempts at once", config: hedging(`{"maxAttempts": 5}`),
			steps: []step{silent(), silent(), answers(5 * ms), silent(), silent()}, sent: times(0, 0, 0, 0, 0), at: 5 * ms,
			winner: 2},
		{name: "nonFatalStatusCodes absent: every error is fatal",
			config: hedging(`{"maxAttempts": 4, "hedgingDelay": "0.01s"}`),
			steps:  []step{silent(), fails(5*ms, unavailable)}, sent: times(0, 10), at: 15 * ms, code: unavailable, winner: 1},

		// Behaviour.
		{name: "the original goes out at once, each hedge hedgingDelay after the one before", config: hedging(four),
			steps: []step{answers(90 * ms), silent(), silent(), silent()}, sent: times(0, 10, 20, 30), at: 90 * ms},
		{name: "the first OK wins", config: hedging(four),
			steps: []step{silent(), silent(), answers(3 * ms)}, sent: times(0, 10, 20), at: 23 * ms, winner: 2},
		{name: "a fatal status ends the race with that error", config: hedging(four),
			steps: []step{silent(), fails(3*ms, internal)}, sent: times(0, 10), at: 13 * ms, code: internal, winner: 1},
		{name: "an answer such as NOT_FOUND is fatal unless it is named", config: hedging(four),
			steps: []step{silent(), fails(3*ms, codes.NotFound)}, sent: times(0, 10), at: 13 * ms, code: codes.NotFound,
			winner: 1},
		{name: "even NOT_FOUND may be named",
			config: hedging(`{"maxAttempts": 2, "hedgingDelay": "1s", "nonFatalStatusCodes": ["NOT_FOUND"]}`),
			steps:  []step{fails(3*ms, codes.NotFound), answers(2 * ms)}, sent: times(0, 3), at: 5 * ms, winner: 1},
		{name: "a non-fatal status sends the next hedge immediately", config: hedging(four),
			steps: []step{silent(), fails(2*ms, unavailable), answers(1 * ms)}, sent: times(0, 10, 12), at: 13 * ms, winner: 2},
		{name: "also that of the original, before any hedge", config: hedging(four),
			steps: []step{fails(2*ms, unavailable), answers(1 * ms)}, sent: times(0, 2), at: 3 * ms, winner: 1},
		{name: "when all have failed the primary's failure is the call's: rule 2",
			config: hedging(both),
			steps:  []step{fails(2*ms, unavailable), fails(3*ms, internal)}, sent: times(0, 2), at: 5 * ms, code: unavailable},
		{name: "a stream that cannot be opened is an attempt that fails", config: hedging(four),
			steps: []step{broken, broken, answers(ms)}, sent: times(0, 1, 2), at: 3 * ms, winner: 2},
		{name: "no stream can be opened", config: hedging(two), doors: doors[1:],
			steps: []step{broken, broken}, sent: times(0, 1), at: 2 * ms, code: unavailable},
		{name: "throttled, the original is always sent",
			config: hedging(two, `, "retryThrottling": {"maxTokens": 1, "tokenRatio": 0.001}`),
			steps:  []step{fails(2*ms, unavailable)}, sent: times(0), at: 2 * ms, code: unavailable},

		// Pushback.
		{name: "a pushback of n ms delays the next hedge by n ms from now", config: hedging(four),
			steps: []step{fails(2*ms, unavailable, "30"), answers(1 * ms)}, sent: times(0, 32), at: 33 * ms, winner: 1},
		{name: "a pushback of 0 sends it at once", config: hedging(four),
			steps: []step{fails(2*ms, unavailable, "0"), answers(1 * ms)}, sent: times(0, 2), at: 3 * ms, winner: 1},
		{name: "a negative pushback: no more hedges for this call", config: hedging(four),
			steps: []step{answers(80 * ms), fails(2*ms, unavailable, "-1")}, sent: times(0, 10), at: 80 * ms},
		{name: "a pushback of 0 to a hedge does not raise maxAttempts",
			config: hedging(`{"maxAttempts": 3, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}`),
			steps:  []step{answers(80 * ms), fails(2*ms, unavailable, "0"), silent()}, sent: times(0, 10, 12), at: 80 * ms},
		{name: "a pushback while the original is in flight delays the next hedge too", config: hedging(four),
			steps: []step{silent(), fails(2*ms, unavailable, "30"), answers(1 * ms)}, sent: times(0, 10, 42), at: 43 * ms,
			winner: 2},
		{name: "the ones after it resume at hedgingDelay", config: hedging(four),
			steps: []step{silent(), fails(2*ms, unavailable, "30"), silent(), answers(1 * ms)},
			sent:  times(0, 10, 42, 52), at: 53 * ms, winner: 3},
		{name: "an unparsable pushback: no more hedges", config: hedging(four),
			steps: []step{fails(2*ms, unavailable, "soon")}, sent: times(0), at: 2 * ms, code: unavailable},
	})
}
