package interceptor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// goodBut lets the answers of the given attempts be rejected: replies have the number of their attempt, statuses have it in their text.
func goodBut(attempts ...int64) hedge.Option {
	return hedge.WithAcceptable(func(_ context.Context, _ string, reply any, err error) bool {
		for _, n := range attempts {
			if err != nil && strings.HasSuffix(status.Convert(err).Message(), fmt.Sprint("attempt ", n)) {
				return false
			}
			switch r := reply.(type) {
			case *wrapperspb.Int64Value:
				if r.Value == n {
					return false
				}
			case *testpb.Reply:
				if int64(r.Attempt) == n {
					return false
				}
			}
		}
		return true
	})
}

// answerCase is a call with rejected answers: what its attempts do, and what the caller gets.
type answerCase struct {
	name     string
	steps    []step
	rejected []int64 // attempts
	opts     []hedge.Option

	winner     int
	code       codes.Code
	at         time.Duration
	sent       int // attempts
	isRejected bool
	after      time.Duration // the deadline; 0: none

	unaryOnly bool
}

var answerCases = []answerCase{
	{name: "a good answer ends the call",
		steps: []step{{after: 2 * ms}}, at: 2 * ms, sent: 1},
	{name: "a rejected answer sends the next hedge at once",
		steps: []step{{after: 2 * ms}, {after: 3 * ms}}, rejected: []int64{0}, winner: 1, at: 5 * ms, sent: 2},
	{name: "each rejected answer does, and the first is delivered if there is no better one",
		steps: []step{{after: 2 * ms}, {after: 3 * ms}, {after: 4 * ms}}, rejected: []int64{0, 1, 2}, winner: 0, at: 9 * ms, sent: 3, isRejected: true},
	{name: "no hedge is left",
		steps: []step{{after: 2 * ms}}, rejected: []int64{0}, opts: []hedge.Option{hedge.WithMaxHedges(0)}, winner: 0, at: 2 * ms, sent: 1}, // the function is not asked,
	{name: "the budget pays for none",
		steps: []step{{after: 2 * ms}}, rejected: []int64{0}, opts: []hedge.Option{hedge.WithBudgetPercent(1e-9)}, winner: 0, at: 2 * ms, sent: 1, isRejected: true},
	{name: "a hedge's rejected answer waits for the primary",
		steps: []step{{after: 30 * ms}, {after: 2 * ms}, {after: 100 * ms}}, rejected: []int64{1}, winner: 0, at: 30 * ms, sent: 3},
	{name: "a hedge's rejected answer is better than the primary's failure",
		steps: []step{{after: 30 * ms, code: codes.Unavailable}, {after: 2 * ms}, {after: 3 * ms, code: codes.Internal}}, rejected: []int64{1}, winner: 1, at: 30 * ms, sent: 3, isRejected: true},
	{name: "a final status does not replace a rejected reply",
		steps: []step{{after: 2 * ms}, {after: 3 * ms, code: codes.NotFound}, {after: 3 * ms}}, rejected: []int64{0}, opts: []hedge.Option{hedge.WithReadOnlyMethods("/test.Service/*"), hedge.WithMaxHedges(1)}, winner: 0, at: 5 * ms, sent: 2, isRejected: true},
	{name: "the primary's own final status does not either",
		steps: []step{{after: 30 * ms, code: codes.PermissionDenied}, {after: 2 * ms}}, rejected: []int64{1}, opts: []hedge.Option{hedge.WithMaxHedges(1)}, winner: 1, at: 30 * ms, sent: 2, isRejected: true},
	{name: "a rejected status of the primary",
		steps: []step{{after: 2 * ms, code: codes.NotFound}, {after: 3 * ms}}, rejected: []int64{0}, winner: 1, at: 5 * ms, sent: 2},
	{name: "a rejected status, and nothing better",
		steps: []step{{after: 2 * ms, code: codes.NotFound}, {after: 3 * ms, code: codes.Unavailable}}, rejected: []int64{0}, winner: 0, code: codes.NotFound, at: 5 * ms, sent: 2, isRejected: true},
	{name: "a hedge's rejected status is better than the primary's failure",
		steps: []step{{after: 30 * ms, code: codes.Unavailable}, {after: 2 * ms, code: codes.NotFound}}, rejected: []int64{1}, opts: []hedge.Option{hedge.WithReadOnlyMethods("/test.Service/*"), hedge.WithMaxHedges(1)}, winner: 1, code: codes.NotFound, at: 30 * ms, sent: 2, isRejected: true},
	{name: "a rejected status is better than the last failure, where that is the outcome",
		steps: []step{{after: 2 * ms, code: codes.NotFound}, {after: 3 * ms, code: codes.Unavailable}}, rejected: []int64{0}, opts: []hedge.Option{hedge.WithServiceConfig(hedging(`{"maxAttempts": 2, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}`))}, winner: 0, code: codes.NotFound, at: 5 * ms, sent: 2, isRejected: true, unaryOnly: true},
	{name: "the deadline passes with a hedge's rejected status at hand",
		steps: []step{{after: time.Second}, {after: 2 * ms, code: codes.NotFound}}, rejected: []int64{1}, opts: []hedge.Option{hedge.WithReadOnlyMethods("/test.Service/*"), hedge.WithMaxHedges(1)}, winner: 1, code: codes.NotFound, at: 50 * ms, sent: 2, isRejected: true, after: 50 * ms},
	{name: "a failure is no rejected answer",
		steps: []step{{after: 2 * ms, code: codes.Unavailable}}, rejected: []int64{0}, winner: 0, code: codes.Unavailable, at: 2 * ms, sent: 1},
	{name: "the deadline passes with a rejected reply at hand",
		steps: []step{{after: 2 * ms}, {after: time.Second}, {after: time.Second}}, rejected: []int64{0}, winner: 0, at: 50 * ms, sent: 3, isRejected: true, after: 50 * ms},
	{name: "the deadline passes with a hedge's rejected reply at hand",
		steps: []step{{after: time.Second}, {after: 2 * ms}, {after: time.Second}}, rejected: []int64{1}, winner: 1, at: 50 * ms, sent: 3, isRejected: true, after: 50 * ms},
	{name: "a server that pushes back is not waited for",
		steps: []step{{after: 30 * ms}, {after: 2 * ms, code: codes.Unavailable, pushback: []string{"5000"}}}, rejected: []int64{0}, winner: 0, at: 30 * ms, sent: 2, isRejected: true},
}

// TestRule02_RejectedAnswers goes through calls with rejected answers.
func TestRule02_RejectedAnswers(t *testing.T) {
	for _, tc := range answerCases {
		for _, d := range []door{unary, streaming} { // headers are not judged
			if d == streaming && (tc.after > 0 || tc.unaryOnly) {
				continue
			}
			t.Run(tc.name+", "+string(d), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testAnswer(t, d, tc) })
			})
		}
	}
}

func testAnswer(t *testing.T, d door, tc answerCase) {
	opts := append([]hedge.Option{goodBut(tc.rejected...), hedge.WithGuard(false)}, tc.opts...)
	s := hedgetest.Fixed(t, 10*ms, opts...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if tc.after > 0 {
		ctx, cancel = context.WithTimeout(ctx, tc.after)
		defer cancel()
	}
	st := &stub{steps: tc.steps}
	var seen observed
	var outcome stats.Outcome
	reply := wrapperspb.Int64(-1)
	began := time.Now()
	err := st.callBy(d, ctx, s, reply, grpc.Header(&seen.header), grpc.Trailer(&seen.trailer), hedge.Report(&outcome))
	if took := time.Since(began); status.Code(err) != tc.code || took != tc.at {
		t.Errorf("got %v after %v, want %v after %v", err, took, tc.code, tc.at)
	}
	want := fmt.Sprint(tc.winner)
	if err == nil && reply.Value != int64(tc.winner) || err != nil && reply.Value != -1 {
		t.Errorf("reply of attempt %d, want %s", reply.Value, want)
	}
	if first(seen.header) != want || first(seen.trailer) != want {
		t.Errorf("header of attempt %s and trailer of %s, want %s", first(seen.header), first(seen.trailer), want)
	}
	if outcome.Rejected != tc.isRejected || outcome.Winner != tc.winner || outcome.Attempts != tc.sent {
		t.Errorf("%+v, want rejected %t, winner %d of %d", outcome, tc.isRejected, tc.winner, tc.sent)
	}
	stats := s.Stats()
	if int(stats.Hedges) != tc.sent-1 || tc.isRejected && stats.Rejected == 0 {
		t.Errorf("%+v", stats)
	}
}

// answering makes n calls a while apart, each with the request of its number, and returns how many replies were 0. An attempt takes
// what takes says and replies with what it returns.
func answering(t *testing.T, s *hedge.Scheduler, n int, apart time.Duration, takes func(id, attempt int) (time.Duration, int64, error)) (zero int) {
	t.Helper()
	for id := range n {
		reply := wrapperspb.Int64(0)
		err := interceptor.Unary(s)(t.Context(), "/test.Service/Method", wrapperspb.Int64(int64(id)), reply, nil,
			func(ctx context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				d, answer, err := takes(id, previousAttempts(ctx))
				select {
				case <-time.After(d):
					reply.(*wrapperspb.Int64Value).Value = answer
					return err
				case <-ctx.Done():
					return status.FromContextError(ctx.Err()).Err()
				}
			})
		if err != nil {
			t.Fatal(err)
		}
		if reply.Value == 0 {
			zero++
		}
		time.Sleep(apart)
	}
	return zero
}

// TestRule10_ARejectedAnswerIsHedgedWhateverTheTrigger lets one backend of two answer with nothing, as fast as the other. The
// trigger has no reason to hedge, and callers get an answer all the same, as far as the budget goes.
func TestRule10_ARejectedAnswerIsHedgedWhateverTheTrigger(t *testing.T) {
	for _, tc := range []struct {
		name     string
		opts     []hedge.Option
		rejected int // replies of a hundred that are rejected
		want     int // rejected outcomes of a hundred
	}{
		{"within the budget", nil, 5, 0},
		{"two in a row", []hedge.Option{hedge.WithBudgetPercent(50)}, 20, 1},
		{"beyond the budget", nil, 50, 45},
	} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			const calls = 2000
			s, served := hedgetest.All(t, append([]hedge.Option{goodBut(0)}, tc.opts...)...), atomic.Int64{}
			rejected := answering(t, s, calls, 10*ms, func(int, int) (time.Duration, int64, error) {
				n := served.Add(1)
				if int(n*37%100) < tc.rejected {
					n = 0
				}
				return ms, n, nil
			})
			if stats := s.Stats(); rejected > calls*tc.want/100+calls/100 {
				t.Errorf("%d rejected outcomes of %d, want %d%%; %+v", rejected, calls, tc.want, stats)
			}
		})
	}
}

// TestRule13_RejectedAnswersTeachTheirLatency lets half of all answers be rejected: what primaries take is known as without that.
func TestRule13_RejectedAnswersTeachTheirLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		latency := func(opts ...hedge.Option) time.Duration {
			s := hedgetest.All(t, opts...)
			answering(t, s, 2000, 0, func(id, attempt int) (time.Duration, int64, error) {
				if attempt > 0 {
					return 0, 0, status.Error(codes.Unavailable, "no hedge answers")
				}
				return time.Duration(1+id%10) * ms, int64(id % 2), nil
			})
			p50, _ := s.Latency("", "/test.Service/Method", 0.5)
			return p50
		}
		if rejected, plain := latency(goodBut(0), hedge.WithGuard(false)), latency(hedge.WithMaxHedges(0)); rejected != plain {
			t.Errorf("the median is %v with rejected answers, %v without", rejected, plain)
		}
	})
}

// TestRule09_WithAcceptablePanics lets the user's function panic.
func TestRule09_WithAcceptablePanics(t *testing.T) {
	for n := range int64(2) {
		hedgetest.Run(t, fmt.Sprint("attempt ", n), func(t *testing.T) {
			panics := hedge.WithAcceptable(func(_ context.Context, _ string, reply any, _ error) bool {
				if reply.(*wrapperspb.Int64Value).Value == n {
					panic("of the function")
				}
				return true
			})
			st := &stub{steps: []step{{after: time.Duration(5+20*n) * ms}, {after: ms}}}
			defer func() {
				if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "of the function") {
					t.Errorf("panic %v", v)
				}
			}()
			_ = st.call(t.Context(), hedgetest.Fixed(t, 10*ms, panics), wrapperspb.Int64(-1))
			t.Error("no panic")
		})
	}
}

// TestRule12_SavingsPayForRejectedAnswers lets six of a hundred primaries answer with a rejected reply, at one call a second, so that the bucket alone
// pays for two of three hedges of them. Savings pay for the others while hedges have better answers, and otherwise do not.
func TestRule12_SavingsPayForRejectedAnswers(t *testing.T) {
	longtest.Simulation(t)
	const calls, rejectedShare = 3000, 6
	for _, better := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := hedgetest.All(t, hedge.WithMaxHedges(1), goodBut(0))
			draw := rand.New(rand.NewPCG(1, 2))
			rejected, answer := 0, int64(0)
			delivered := answering(t, s, calls, time.Second, func(_, attempt int) (time.Duration, int64, error) {
				if attempt > 0 {
					return ms, answer | map[bool]int64{true: 1}[better], nil
				}
				if answer = 1; draw.IntN(100) < rejectedShare {
					answer = 0
					rejected++
				}
				return ms, answer, nil
			})
			stats, saved := s.Stats(), s.Methods()[0].Saved
			t.Logf("%d rejected answers, %d delivered, %d hedges, %.1f saved", rejected, delivered, stats.Hedges, saved)
			switch {
			case better && delivered > rejected/10:
				t.Errorf("%d of %d rejected answers were delivered", delivered, rejected)
			case !better && saved < 2:
				t.Errorf("savings were spent on hedges that have nothing better: %v are left", saved)
			case stats.HedgeWins+stats.PrimaryWins != stats.Hedged:
				t.Errorf("%+v", stats)
			}
		})
	}
}
