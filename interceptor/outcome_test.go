package interceptor_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

const ms = time.Millisecond

// TestRule02_Matrix goes through every pair of outcomes of a primary and a hedge, in both orders, of a method that may
// change something and of one that only reads.
func TestRule02_Matrix(t *testing.T) {
	for primary := codes.OK; primary <= codes.Unauthenticated; primary++ {
		for hedged := codes.OK; hedged <= codes.Unauthenticated; hedged++ {
			for _, primaryFirst := range []bool{true, false} {
				for _, reads := range []bool{true, false} {
					eachDoor(t, fmt.Sprintf("%v,%v,primaryFirst=%v,reads=%v", primary, hedged, primaryFirst, reads), func(t *testing.T, d door) {
						testPair(t, d, primary, hedged, primaryFirst, reads)
					})
				}
			}
		}
	}
}

func testPair(t *testing.T, d door, primary, hedged codes.Code, primaryFirst, reads bool) {
	const hedgeAt, early, late = 10 * ms, 20 * ms, 40 * ms
	opts := []hedge.Option{hedge.WithMaxHedges(1)}
	if reads {
		opts = append(opts, hedge.WithReadOnlyMethods("/test.Service/Method"))
	}
	primaryAt, hedgeEnd := late, early
	if primaryFirst {
		primaryAt, hedgeEnd = early, late
	}
	st := &stub{steps: []step{{after: primaryAt, code: primary}, {after: hedgeEnd - hedgeAt, code: hedged}}}
	reply := wrapperspb.Int64(-1)
	s := hedgetest.Fixed(t, hedgeAt, opts...)
	began := time.Now()
	err := st.callBy(d, t.Context(), s, reply)
	took := time.Since(began)

	// The first deciding outcome ends the call: an answer of the primary, a success of the hedge, and any answer of the
	// hedge where the method only reads. Without one the primary's error does, when both have failed.
	decides := hedged == codes.OK || reads && isAnswer(hedged)
	wantCode, wantAt := primary, late
	winner := int64(0)
	switch {
	case isAnswer(primary) && (primaryFirst || !decides):
		wantAt = primaryAt
	case decides:
		wantCode, wantAt, winner = hedged, hedgeEnd, 1
	}
	if status.Code(err) != wantCode || took != wantAt {
		t.Errorf("got %v after %v, want %v after %v", err, took, wantCode, wantAt)
	}
	if err == nil && reply.Value != winner {
		t.Errorf("reply of attempt %d, want %d", reply.Value, winner)
	}
	if err != nil && reply.Value != -1 {
		t.Errorf("the reply of a call that failed is %d", reply.Value)
	}
	if (primary == codes.OK || hedged == codes.OK) && !isAnswer(wantCode) {
		t.Errorf("a success became %v", wantCode)
	}
	if primary == codes.OK && !reads && err != nil {
		t.Errorf("the hedge made a success of the primary %v", err)
	}
	want := stats.Counts{Calls: 1, Warmup: 1, Hedged: 1, Hedges: 1}
	switch {
	case winner > 0:
		want.HedgeWins = 1
	case isAnswer(wantCode):
		want.PrimaryWins = 1
	}
	if got := s.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestRule02_WhoseHedgesMayAnswerWithAnError has a hedge answer NOT_FOUND while the primary is about to succeed.
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
		{"WithReadOnlyMethods", "/test.Service/Method", []hedge.Option{hedge.WithReadOnlyMethods("/test.Service/*")}, codes.NotFound},
		{"a hedgingPolicy", "/test.Service/Method", []hedge.Option{hedge.WithServiceConfig(policy)}, codes.NotFound},
		{"NOT_FOUND named non-fatal", testpb.TestService_UnaryNoSideEffects_FullMethodName, []hedge.Option{hedge.WithNonFatalCodes(codes.NotFound)}, codes.OK},
	} {
		for _, shared := range []bool{false, true} { // past the cap on a target's methods
			hedgetest.Run(t, fmt.Sprintf("%s,shared=%v", tc.name, shared), func(t *testing.T) {
				s := hedgetest.Fixed(t, 10*ms, append(tc.opts, hedge.WithMaxHedges(1))...)
				for i := 0; shared && i < 300; i++ {
					call.PassThrough(registry.Of(s), t.Context(), "", fmt.Sprintf("/junk.Service/%d", i), nil)
				}
				st := &stub{steps: []step{{after: 50 * ms}, {after: 5 * ms, code: codes.NotFound}}}
				err := interceptor.Unary(s)(t.Context(), tc.method, wrapperspb.Int64(1), wrapperspb.Int64(1), nil, st.invoke)
				if status.Code(err) != tc.want || s.Stats().Hedges != 1 {
					t.Errorf("%v, want %v; %+v", err, tc.want, s.Stats())
				}
				synctest.Wait()
			})
		}
	}
}

func TestRule02_NonFatalCodesReplaceTheDefault(t *testing.T) {
	for _, tc := range []struct {
		name     string
		nonFatal []codes.Code
		failure  codes.Code // of the attempt that ends first; the other answers
		want     codes.Code // if the failure is the primary's, or that of a hedge that only reads
	}{
		{"named code goes on", []codes.Code{codes.NotFound}, codes.NotFound, codes.OK},
		{"other code ends the race", []codes.Code{codes.NotFound}, codes.Unavailable, codes.Unavailable},
		{"empty list, every error ends it", nil, codes.Unavailable, codes.Unavailable},
		{"undefined code is Unknown", []codes.Code{codes.Unknown}, codes.Code(99), codes.OK},
	} {
		fails, answers := step{after: 15 * ms, code: tc.failure}, step{after: 50 * ms}
		for _, which := range []struct {
			name  string
			steps []step
			opt   hedge.Option
			want  codes.Code
		}{
			{"of the primary", []step{fails, answers}, nil, tc.want},
			{"of a hedge", []step{answers, fails}, nil, codes.OK},
			{"of a hedge that only reads", []step{answers, fails}, hedge.WithReadOnlyMethods("/test.Service/Method"), tc.want},
		} {
			hedgetest.Run(t, tc.name+", "+which.name, func(t *testing.T) {
				st := &stub{steps: which.steps}
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithNonFatalCodes(tc.nonFatal...), which.opt)
				if err := st.call(t.Context(), s, wrapperspb.Int64(-1)); status.Code(err) != which.want {
					t.Errorf("got %v, want %v", err, which.want)
				}
				synctest.Wait()
			})
		}
	}
}

func TestRule03_PrimaryFailsBeforeAnyHedge(t *testing.T) {
	eachDoor(t, "once", func(t *testing.T, d door) {
		st := &stub{steps: []step{{after: 9 * ms, code: codes.Unavailable}, {}}}
		began := time.Now()
		err := st.callBy(d, t.Context(), hedgetest.Fixed(t, 10*ms), wrapperspb.Int64(-1))
		if status.Code(err) != codes.Unavailable || time.Since(began) != 9*ms {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		time.Sleep(time.Second)
		if n := len(st.sent()); n != 1 {
			t.Errorf("%d attempts, want the primary alone", n)
		}
	})
}

// TestRule13_AFastFailureTeachesNothing also when a hedge wins afterwards: the primary was not cut short.
func TestRule13_AFastFailureTeachesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
		for range 30 {
			for _, steps := range [][]step{{answers(5 * ms)}, {fails(12*ms, codes.Unavailable), answers(30 * ms)}} {
				if err := (&stub{steps: steps}).call(t.Context(), s, wrapperspb.Int64(-1)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if d, _ := s.Latency("", "/test.Service/Method", 0.99); d > 6*ms || s.Stats().HedgeWins != 30 {
			t.Errorf("learned %v; %+v", d, s.Stats())
		}
	})
}

func TestRule04_DeadlineAndCancelBoundTheRace(t *testing.T) {
	never := time.Hour
	for _, tc := range []struct {
		name  string
		steps []step
		want  codes.Code // of the primary, or what the caller's context makes of it
	}{
		{"both silent", []step{{after: never}, {after: never}}, codes.OK},
		{"primary failed, hedge silent", []step{{after: 15 * ms, code: codes.Unavailable}, {after: never}}, codes.Unavailable},
		{"hedge failed, primary silent", []step{{after: never}, {after: ms, code: codes.Unavailable}}, codes.OK},
	} {
		for _, deadline := range []bool{true, false} {
			eachDoor(t, fmt.Sprintf("%s,deadline=%v", tc.name, deadline), func(t *testing.T, d door) {
				ctx, cancel := context.WithCancel(t.Context())
				want := codes.Canceled
				if deadline {
					ctx, cancel = context.WithTimeout(t.Context(), 30*ms)
					want = codes.DeadlineExceeded
				} else {
					time.AfterFunc(30*ms, cancel)
				}
				defer cancel()
				if tc.want != codes.OK {
					want = tc.want
				}
				st := &stub{steps: tc.steps}
				began := time.Now()
				err := st.callBy(d, ctx, hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)), wrapperspb.Int64(-1))
				if status.Code(err) != want || time.Since(began) != 30*ms {
					t.Errorf("got %v after %v, want %v after 30ms", err, time.Since(began), want)
				}
				synctest.Wait()
				if len(st.sent()) != 2 {
					t.Errorf("%d attempts have ended, want 2", len(st.sent()))
				}
			})
		}
	}
}

func TestRule09_PanicOfAHedgeSurfacesOnTheCaller(t *testing.T) {
	value := errors.New("a value of its own")
	for _, tc := range []struct {
		name     string
		steps    []step
		hedge    bool // it is the one that panics
		want     any
		wantAt   time.Duration
		attempts int
	}{
		{"while the primary runs", []step{{after: 50 * ms}, {after: 5 * ms, panics: value}}, true, value, 15 * ms, 2},
		{"after the primary failed", []step{{after: 12 * ms, code: codes.Unavailable}, {after: 5 * ms, panics: value}}, true, value, 15 * ms, 2},
		{"the primary itself", []step{{after: 15 * ms, panics: value}, {after: 50 * ms}}, false, value, 15 * ms, 2},
	} {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			st := &stub{steps: tc.steps}
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
			began := time.Now()
			got := func() (v any) {
				defer func() { v = recover() }()
				err := st.callBy(d, t.Context(), s, wrapperspb.Int64(-1))
				return fmt.Sprintf("no panic: %v", err)
			}()
			if time.Since(began) != tc.wantAt {
				t.Errorf("recovered %v after %v", got, time.Since(began))
			}
			switch p, ok := got.(*hedge.Panic); {
			case ok != tc.hedge || !ok && got != tc.want:
				t.Errorf("recovered a %T: %v", got, got)
			case ok && (p.Value != tc.want || !errors.Is(p, value) || !strings.Contains(p.Error(), value.Error())):
				t.Errorf("recovered %v, which holds %v", p, p.Value)
			case ok && (!strings.Contains(string(p.Stack), "(*stub") || !strings.Contains(p.Error(), string(p.Stack))):
				t.Errorf("the hedge's stack is lost: %s", p.Stack)
			}
			synctest.Wait()
			if n := len(st.sent()); n != tc.attempts {
				t.Errorf("%d attempts have ended, want %d", n, tc.attempts)
			}
		})
	}
}

func TestRule09_PanicOfALoserIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
		invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			if previousAttempts(ctx) == 0 {
				time.Sleep(20 * ms)
				return nil
			}
			<-ctx.Done()
			panic("too late")
		}
		if err := interceptor.Unary(s)(t.Context(), "/a/B", wrapperspb.Int64(1), wrapperspb.Int64(1), nil, invoke); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := s.Stats(); got.LoserPanics != 1 || got.PrimaryWins != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// TestRule09_GoexitOfAHedgeEndsTheCaller ends the goroutine of a hedge, as t.FailNow does: in the attempt, or in the user's function.
func TestRule09_GoexitOfAHedgeEndsTheCaller(t *testing.T) {
	for name, exitsBelow := range map[string]bool{"attempt": true, "WithAcceptable": false} {
		hedgetest.Run(t, name, func(t *testing.T) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), hedge.WithAcceptable(func(context.Context, string, any, error) bool {
				runtime.Goexit()
				return true
			}))
			invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				if previousAttempts(ctx) == 0 {
					<-ctx.Done()
				} else if exitsBelow {
					runtime.Goexit()
				}
				return ctx.Err()
			}
			returned, ended := false, make(chan struct{})
			go func() {
				defer close(ended)
				_ = interceptor.Unary(s)(t.Context(), "/a/B", wrapperspb.Int64(1), wrapperspb.Int64(1), nil, invoke)
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
	for _, tc := range []struct {
		name string
		opts []grpc.CallOption
		want []time.Duration
	}{
		{"learned", nil, []time.Duration{0, 10 * ms, 20 * ms, 30 * ms, 40 * ms}},
		{"After", []grpc.CallOption{hedge.After(3 * ms)}, []time.Duration{0, 3 * ms, 6 * ms, 9 * ms, 12 * ms}},
		{"After(0)", []grpc.CallOption{hedge.After(0)}, []time.Duration{0, 0, 0, 0, 0}},
		{"After(-1)", []grpc.CallOption{hedge.After(-1)}, []time.Duration{0, 0, 0, 0, 0}},
		{"Off", []grpc.CallOption{hedge.Off()}, []time.Duration{0}},
		{"the last counts", []grpc.CallOption{hedge.Off(), hedge.After(5 * ms)}, []time.Duration{0, 5 * ms, 10 * ms, 15 * ms, 20 * ms}},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			st := &stub{steps: []step{{after: 100 * ms}, {after: time.Hour}, {after: time.Hour}, {after: time.Hour}, {after: time.Hour}}}
			began := time.Now()
			if err := st.call(t.Context(), hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(4)), wrapperspb.Int64(-1), tc.opts...); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			sent := st.sent()
			if len(sent) != len(tc.want) {
				t.Fatalf("%d attempts, want %d", len(sent), len(tc.want))
			}
			for n, a := range sent {
				if got := a.began.Sub(began); got != tc.want[n] {
					t.Errorf("attempt %d went out after %v, want %v", n, got, tc.want[n])
				}
			}
		})
	}
}

// TestRule04_ADeafHedgeHoldsNobodyUp has a hedge below which something does not listen to its context.
func TestRule04_ADeafHedgeHoldsNobodyUp(t *testing.T) {
	for _, tc := range []struct {
		name    string
		primary time.Duration // when it fails, or answers
		code    codes.Code
		want    time.Duration
	}{
		{"the caller's deadline passes", 15 * ms, codes.Unavailable, 30 * ms},
		{"the primary answers", 20 * ms, codes.OK, 20 * ms},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			invoke := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				if previousAttempts(ctx) > 0 {
					time.Sleep(time.Second)
					return nil
				}
				time.Sleep(tc.primary)
				return status.Error(tc.code, "")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
			defer cancel()
			began := time.Now()
			err := interceptor.Unary(hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1)))(ctx, "/a/B", wrapperspb.Int64(1), wrapperspb.Int64(1), nil, invoke)
			if status.Code(err) != tc.code || time.Since(began) != tc.want {
				t.Errorf("%v after %v, want %v after %v", err, time.Since(began), tc.code, tc.want)
			}
			time.Sleep(2 * time.Second)
		})
	}
}
