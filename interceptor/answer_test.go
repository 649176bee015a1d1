package interceptor_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
	"github.com/grpchedge/hedge/stats"
)

// goodBut lets the answers of the given attempts be rejected: replies have the number of their
// attempt, statuses have it in their text.
func goodBut(attempts ...int64) hedge.Option {
	return hedge.WithAcceptable(func(_ context.Context, _ string, reply any, err error) bool {
		for _, n := range attempts {
			if err != nil && strings.HasSuffix(status.Convert(err).Message(), fmt.Sprint("attempt ", n)) {
				return false
			}
			if r, ok := reply.(*wrapperspb.Int64Value); ok && r.Value == n {
				return false
			}
			if r, ok := reply.(*testpb.Reply); ok && int64(r.Attempt) == n {
				return false
			}
		}
		return true
	})
}

// TestRule02_RejectedAnswers goes through calls with rejected answers. A stream goes on after a
// rejected message, also when the deadline has passed. The tests of internal/race have all orders
// in which attempts end.
func TestRule02_RejectedAnswers(t *testing.T) {
	readOnly, one := hedge.WithReadOnlyMethods("/test.Service/*"), hedge.WithMaxHedges(1)
	scenes := []scene{
		{name: "a good answer ends the call", opts: []hedge.Option{goodBut()},
			steps: []step{answers(2 * ms)}, at: 2 * ms, sent: times(0)},
		{name: "a rejected answer sends the next hedge at once", opts: []hedge.Option{goodBut(0)},
			steps: []step{answers(2 * ms), answers(3 * ms)}, winner: 1, at: 5 * ms, sent: times(0, 2)},
		{name: "each rejected answer does, and the first is delivered if there is no better one",
			opts:  []hedge.Option{goodBut(0, 1, 2)},
			steps: []step{answers(2 * ms), answers(3 * ms), answers(4 * ms)}, at: 9 * ms, sent: times(0, 2, 5), rejected: true},
		{name: "no hedge is left", opts: []hedge.Option{goodBut(0), hedge.WithMaxHedges(0)},
			steps: []step{answers(2 * ms)}, at: 2 * ms, sent: times(0)}, // the function is not asked
		{name: "the budget pays for none", opts: []hedge.Option{goodBut(0), hedge.WithBudgetPercent(1e-9)},
			steps: []step{answers(2 * ms)}, at: 2 * ms, sent: times(0), rejected: true},
		{name: "a hedge's rejected answer is better than the primary's failure", opts: []hedge.Option{goodBut(1)},
			steps: []step{fails(30*ms, codes.Unavailable), answers(2 * ms), fails(3*ms, codes.Internal)}, winner: 1,
			at: 30 * ms, sent: times(0, 10, 12), rejected: true},
		{name: "a rejected status of the primary", opts: []hedge.Option{goodBut(0)},
			steps: []step{fails(2*ms, codes.NotFound), answers(3 * ms)}, winner: 1, at: 5 * ms, sent: times(0, 2)},
		{name: "a hedge's rejected status is better than the primary's failure",
			opts:  []hedge.Option{goodBut(1), readOnly, one},
			steps: []step{fails(30*ms, codes.Unavailable), fails(2*ms, codes.NotFound)}, winner: 1, code: codes.NotFound,
			at: 30 * ms, sent: times(0, 10), rejected: true},
		{name: "the deadline passes with a rejected reply at hand", opts: []hedge.Option{goodBut(0)}, doors: doors[:1],
			steps: []step{answers(2 * ms), answers(time.Second), answers(time.Second)}, at: 50 * ms, sent: times(0, 2, 12),
			rejected: true, deadline: 50 * ms},
		{name: "the deadline passes with a hedge's rejected reply at hand", opts: []hedge.Option{goodBut(1)},
			doors: doors[:1],
			steps: []step{answers(time.Second), answers(2 * ms), answers(time.Second)}, winner: 1, at: 50 * ms,
			sent: times(0, 10, 12), rejected: true, deadline: 50 * ms},
	}
	for i := range scenes {
		if scenes[i].doors == nil {
			scenes[i].doors = doors[:2] // headers are not judged
		}
	}
	playScenes(t, scenes)
}

// TestRule10_ARejectedAnswerIsHedgedWhateverTheTrigger rejects a share of the answers, which are as
// fast as the others. The trigger has no reason to hedge, but callers get good replies as far as
// the budget allows.
func TestRule10_ARejectedAnswerIsHedgedWhateverTheTrigger(t *testing.T) {
	for rejected, want := range map[int64]int{5: 0, 50: 45} { // of a hundred: answers, and outcomes with a budget of ten
		hedgetest.Run(t, fmt.Sprint(rejected), func(t *testing.T) {
			const calls = 2000
			var judged atomic.Int64
			s := hedgetest.All(t, hedge.WithAcceptable(func(context.Context, string, any, error) bool {
				return judged.Add(1)*37%100 >= rejected
			}))
			got := 0
			for range calls {
				var outcome stats.Outcome
				st := &stub{steps: []step{answers(ms), answers(ms), answers(ms)}}
				if err := st.callBy(unary, t.Context(), s, wrapperspb.Int64(-1), hedge.Report(&outcome)); err != nil {
					t.Fatal(err)
				}
				if outcome.Rejected {
					got++
				}
				time.Sleep(10 * ms)
			}
			if got > calls*want/100+calls/100 {
				t.Errorf("%d rejected outcomes of %d, want %d%%; %+v", got, calls, want, s.Stats())
			}
		})
	}
}

// TestRule13_RejectedAnswersTeachTheirLatency rejects half of all answers: the learned latency of
// primaries is the same as without.
func TestRule13_RejectedAnswersTeachTheirLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		latency := func(opts ...hedge.Option) time.Duration {
			s := hedgetest.All(t, append(opts, hedge.WithGuard(false))...)
			for id := range 2000 {
				failed := fails(0, codes.Unavailable) // no hedge answers
				st := &stub{steps: []step{answers(time.Duration(1+id%10) * ms), failed, failed}}
				if err := st.callBy(unary, t.Context(), s, wrapperspb.Int64(-1)); err != nil {
					t.Fatal(err)
				}
			}
			p50, _ := s.Latency("", "/test.Service/Method", 0.5)
			return p50
		}
		judged := 0
		half := func(context.Context, string, any, error) bool { judged++; return judged%2 == 0 }
		if rejected, plain := latency(hedge.WithAcceptable(half)), latency(hedge.WithMaxHedges(0)); rejected != plain {
			t.Errorf("the median is %v with rejected answers, %v without", rejected, plain)
		}
	})
}

// TestRule09_WithAcceptablePanics lets the user's function panic.
func TestRule09_WithAcceptablePanics(t *testing.T) {
	panics := func(of int64) []hedge.Option {
		return []hedge.Option{hedge.WithMaxHedges(1),
			hedge.WithAcceptable(func(_ context.Context, _ string, reply any, _ error) bool {
				if reply.(*wrapperspb.Int64Value).Value == of {
					panic("of the function")
				}
				return true
			})}
	}
	playScenes(t, []scene{
		{name: "of the primary", opts: panics(0), steps: []step{answers(5 * ms)}, doors: doors[:1], sent: times(0),
			at: 5 * ms, panics: "of the function"},
		{name: "of a hedge", opts: panics(1), steps: []step{answers(25 * ms), answers(ms)}, doors: doors[:2],
			sent: times(0, 10), at: 11 * ms, winner: 1, panics: "of the function"},
	})
}

// TestRule02_RefusalsOfAnotherDestination has us answer the hedge of a read with an error while eu
// takes 35 ms. It is no answer that us lacks the method or rejects the credentials.
func TestRule02_RefusalsOfAnotherDestination(t *testing.T) {
	slow := testserver.Plan{Delay: 35 * ms}
	type row struct {
		name   string
		eu, us testserver.Plan
		opt    hedge.Option
		at     time.Duration
		code   codes.Code
	}
	policy := hedge.WithServiceConfig(`{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 3,
		"hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}}]}`)
	rows := []row{
		{name: "another final status", eu: slow, us: testserver.Plan{Code: codes.NotFound},
			at: 10 * ms, code: codes.NotFound},
		{name: "eu fails over", eu: testserver.Plan{Code: codes.Unavailable},
			us: testserver.Plan{Code: codes.Unauthenticated}, code: codes.Unavailable},
		{name: "eu fails, by a hedgingPolicy", eu: testserver.Plan{Code: codes.Unavailable},
			us: testserver.Plan{Code: codes.Unimplemented}, opt: policy, code: codes.Unavailable},
		{name: "eu pushes back", eu: testserver.Plan{Code: codes.Unavailable,
			Trailer: metadata.Pairs(rpc.PushbackTrailer, "1000")}},
		{name: "eu is slower than us' message", eu: slow, us: testserver.Plan{Delay: 5 * ms}, at: 15 * ms},
	}
	for _, code := range []codes.Code{codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied} {
		refused := testserver.Plan{Code: code}
		rows = append(rows,
			row{name: fmt.Sprintf("%v of us", code), eu: slow, us: refused, at: 35 * ms},
			row{name: fmt.Sprintf("%v of eu", code), eu: testserver.Plan{Delay: 15 * ms, Code: code}, at: 15 * ms,
				us: testserver.Plan{Delay: 35 * ms}, code: code})
	}
	for _, tc := range rows {
		for i := range 2 * len(doors) {
			d, names := doors[i/2], []string{"", ", both of one name"}[i%2]
			if d != unary && tc.opt != nil || d == headersFirst && tc.eu.Code != codes.OK { // eu's headers decide
				continue
			}
			hedgetest.Run(t, tc.name+", "+string(d)+names, func(t *testing.T) {
				opts := []hedge.Option{hedge.WithFailover(), hedge.WithReadOnlyMethods("/hedgetest.TestService/*"), tc.opt}
				if names != "" {
					opts = append(opts, hedge.WithTargetName(func(string) string { return "svc" }))
				}
				r := startRegions(t, tc.eu, tc.us, opts...)
				began := time.Now()
				_, err := callOver(t.Context(), d, testpb.NewTestServiceClient(r.conn), &testpb.Request{Messages: 1})
				if took := time.Since(began); took != tc.at || status.Code(err) != tc.code || r.us.Counts().Attempts == 0 {
					t.Errorf("%v after %v and %d hedges, want %v after %v", err, took, r.us.Counts().Attempts, tc.code, tc.at)
				}
			})
		}
	}
}
