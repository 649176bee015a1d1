package interceptor_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/interceptor"
	"github.com/grpchedge/hedge/internal/rpc"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/internal/testserver/simulation"
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
		{name: "a good answer ends the call", opts: with{goodBut()},
			steps: []step{answers(2 * ms)}, at: 2 * ms, sent: times(0)},
		{name: "a rejected answer sends the next hedge at once", opts: with{goodBut(0)},
			steps: []step{answers(2 * ms), answers(3 * ms)}, winner: 1, at: 5 * ms, sent: times(0, 2)},
		{name: "each rejected answer does, and the first is delivered if there is no better one",
			opts:  with{goodBut(0, 1, 2)},
			steps: []step{answers(2 * ms), answers(3 * ms), answers(4 * ms)}, at: 9 * ms, sent: times(0, 2, 5), rejected: true},
		{name: "no hedge is left", opts: with{goodBut(0), hedge.WithMaxHedges(0)},
			steps: []step{answers(2 * ms)}, at: 2 * ms, sent: times(0)}, // the function is not asked
		{name: "the budget pays for none", opts: with{goodBut(0), hedge.WithBudgetPercent(1e-9)},
			steps: []step{answers(2 * ms)}, at: 2 * ms, sent: times(0), rejected: true},
		{name: "a hedge's rejected answer is better than the primary's failure", opts: with{goodBut(1)},
			steps: []step{fails(30*ms, codes.Unavailable), answers(2 * ms), fails(3*ms, codes.Internal)}, winner: 1,
			at: 30 * ms, sent: times(0, 10, 12), rejected: true},
		{name: "a rejected status of the primary", opts: with{goodBut(0)},
			steps: []step{fails(2*ms, codes.NotFound), answers(3 * ms)}, winner: 1, at: 5 * ms, sent: times(0, 2)},
		{name: "a hedge's rejected status is better than the primary's failure",
			opts:  with{goodBut(1), readOnly, one},
			steps: []step{fails(30*ms, codes.Unavailable), fails(2*ms, codes.NotFound)}, winner: 1, code: codes.NotFound,
			at: 30 * ms, sent: times(0, 10), rejected: true},
		{name: "the deadline passes with a rejected reply at hand", opts: with{goodBut(0)}, doors: doors[:1],
			steps: []step{answers(2 * ms), answers(time.Second), answers(time.Second)}, at: 50 * ms, sent: times(0, 2, 12),
			rejected: true, deadline: 50 * ms},
		{name: "the deadline passes with a hedge's rejected reply at hand", opts: with{goodBut(1)}, doors: doors[:1],
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

func TestRule09_WithAcceptablePanics(t *testing.T) {
	panics := func(of int64) []hedge.Option {
		return with{hedge.WithMaxHedges(1),
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
	slow := plan{Delay: 35 * ms}
	type row struct {
		name   string
		eu, us plan
		opt    hedge.Option
		at     time.Duration
		code   codes.Code
	}
	policy := hedge.WithServiceConfig(`{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 3,
		"hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}}]}`)
	rows := []row{
		{name: "another final status", eu: slow, us: plan{Code: codes.NotFound}, at: 10 * ms, code: codes.NotFound},
		{name: "eu fails over", eu: plan{Code: codes.Unavailable},
			us: plan{Code: codes.Unauthenticated}, code: codes.Unavailable},
		{name: "eu fails, by a hedgingPolicy", eu: plan{Code: codes.Unavailable},
			us: plan{Code: codes.Unimplemented}, opt: policy, code: codes.Unavailable},
		{name: "eu pushes back", eu: plan{Code: codes.Unavailable, Trailer: metadata.Pairs(rpc.PushbackTrailer, "1000")}},
		{name: "eu is slower than us' message", eu: slow, us: plan{Delay: 5 * ms}, at: 15 * ms},
	}
	for _, code := range []codes.Code{codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied} {
		refused := plan{Code: code}
		rows = append(rows, row{name: fmt.Sprintf("%v of us", code), eu: slow, us: refused, at: 35 * ms},
			row{name: fmt.Sprintf("%v of eu", code), eu: plan{Delay: 15 * ms, Code: code}, at: 15 * ms,
				us: plan{Delay: 35 * ms}, code: code})
	}
	for _, tc := range rows {
		for i := range 2 * len(doors) {
			d, names := doors[i/2], []string{"", ", both of one name"}[i%2]
			if d != unary && tc.opt != nil || d == headersFirst && tc.eu.Code != codes.OK { // eu's headers decide
				continue
			}
			hedgetest.Run(t, tc.name+", "+string(d)+names, func(t *testing.T) {
				opts := with{hedge.WithFailover(), hedge.WithReadOnlyMethods("/hedgetest.TestService/*"), tc.opt}
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

// TestRule03_Failover has attempts fail with a code of WithFailover, Unavailable by default, and
// with other codes.
func TestRule03_Failover(t *testing.T) {
	down, quota := fails(2*ms, codes.Unavailable), fails(2*ms, codes.ResourceExhausted)
	failover := func(opts ...hedge.Option) []hedge.Option { return append(opts, hedge.WithFailover()) }
	scenes := []scene{
		{name: "a hedge mends the failure", steps: []step{down, answers(3 * ms)}, sent: times(0, 2), at: 5 * ms, winner: 1},
		{name: "the next hedge is due a delay later", steps: []step{down, silent(), answers(3 * ms)}, sent: times(0, 2, 12),
			at: 15 * ms, winner: 2},
		{name: "every attempt fails", steps: []step{{code: codes.Unavailable, text: "first", after: ms}, down, down},
			sent: times(0, 1, 3), at: 5 * ms, code: codes.Unavailable},
		{name: "a hedge fails, the primary answers", steps: []step{answers(30 * ms), down, silent()},
			sent: times(0, 10, 12), at: 30 * ms},
		{name: "another code", steps: []step{quota}, sent: times(0), at: 2 * ms, code: codes.ResourceExhausted},
		{name: "named codes", opts: with{hedge.WithFailover(codes.NotFound, codes.ResourceExhausted)},
			steps: []step{quota, fails(2*ms, codes.NotFound), answers(ms)}, sent: times(0, 2, 4), at: 5 * ms, winner: 2},
		{name: "named codes replace the default", opts: with{hedge.WithFailover(codes.NotFound)},
			steps: []step{down}, sent: times(0), at: 2 * ms, code: codes.Unavailable},
		{name: "a pushback", steps: []step{fails(2*ms, codes.Unavailable, "1")}, sent: times(0), at: 2 * ms,
			code: codes.Unavailable},
		{name: "a pushback of 0", steps: []step{fails(2*ms, codes.Unavailable, "0"), answers(ms)}, sent: times(0, 2),
			at: 3 * ms, winner: 1},
		{name: "one hedge is the maximum", opts: failover(hedge.WithMaxHedges(1)), steps: []step{down, down},
			sent: times(0, 2), at: 4 * ms, code: codes.Unavailable},
		{name: "none is", opts: failover(hedge.WithMaxHedges(0)), steps: []step{down}, sent: times(0), at: 2 * ms,
			code: codes.Unavailable},
		{name: "warm-up without hedges", opts: failover(hedge.WithWarmup(1<<30, 0)),
			steps: []step{{code: codes.Unavailable, after: time.Second}, answers(time.Second)},
			sent:  times(0, 1000), at: 2 * time.Second, winner: 1},
		{name: "a slow call of the warm-up", opts: failover(hedge.WithWarmup(1<<30, 0)), steps: []step{answers(time.Hour)},
			sent: times(0), at: time.Hour},
		{name: "a final status of the hedge, of a method that only reads", opts: failover(
			hedge.WithReadOnlyMethods("/test.Service/Method")), steps: []step{down, fails(ms, codes.NotFound)},
			sent: times(0, 2), at: 3 * ms, code: codes.NotFound, winner: 1},
		{name: "a final status of the hedge", steps: []step{down, fails(ms, codes.NotFound)}, sent: times(0, 2), at: 3 * ms,
			code: codes.Unavailable},
		{name: "the caller has gone", steps: []step{{code: codes.Unavailable, after: 5 * ms, deaf: true}}, cancel: 4 * ms,
			sent: times(0), at: 5 * ms, code: codes.Unavailable, doors: doors[:1]},
		{name: "a stream that cannot be opened", steps: []step{{code: codes.Unavailable, after: 2 * ms, broken: true},
			answers(ms)}, sent: times(0, 2), at: 3 * ms, winner: 1, doors: doors[1:]},
	}
	for i := range scenes {
		if scenes[i].opts == nil {
			scenes[i].opts = failover()
		}
	}
	playScenes(t, scenes)
}

// TestRule12_ADryBudgetLeavesThePrimarysError has two calls in a row fail, where the budget pays for
// one hedge.
func TestRule12_ADryBudgetLeavesThePrimarysError(t *testing.T) {
	eachDoor(t, "Unavailable", func(t *testing.T, d door) {
		s := hedgetest.Fixed(t, 10*ms, hedge.WithFailover(), hedge.WithBudgetPercent(1))
		down := fails(2*ms, codes.Unavailable)
		scene{steps: []step{down, answers(3 * ms)}, sent: times(0, 2), at: 5 * ms, winner: 1}.play(t, d, s)
		scene{steps: []step{down}, sent: times(0), at: 2 * ms, code: codes.Unavailable}.play(t, d, s)
		if got := s.Stats(); got.Failovers != 1 || got.BudgetExhausted != 1 {
			t.Errorf("%d failovers and %d exhausted budgets, want one of each: %+v", got.Failovers, got.BudgetExhausted, got)
		}
	})
}

// TestRule13_FailoversTeachNothing has each third call of a method fail over. Its delay is as for
// the same calls without failures, and no hedge has a latency.
func TestRule13_FailoversTeachNothing(t *testing.T) {
	eachDoor(t, "one call in three", func(t *testing.T, d door) {
		s := hedgetest.All(t, hedge.WithFailover(), hedge.WithBudgetPercent(100))
		for n := range 120 {
			sc := scene{steps: []step{answers(10 * ms)}, sent: times(0), at: 10 * ms}
			if n%3 == 0 {
				sc = scene{steps: []step{fails(0, codes.Unavailable), answers(200 * ms)}, sent: times(0, 0), at: 200 * ms,
					winner: 1}
			}
			sc.play(t, d, s)
		}
		m := s.Methods()[0]
		if m.P99 > 11*ms || m.Failovers != 40 {
			t.Errorf("p99 of primaries is %v after %d failovers, want 10 ms after 40", m.P99, m.Failovers)
		}
	})
}

// TestRule02_AConnectionThatBreaksAfterHeaders: the status that gRPC makes when the connection of a
// hedge breaks, or is closed, is not a server's, even if the server has sent headers. It does not end
// the race, whichever codes are final.
func TestRule02_AConnectionThatBreaksAfterHeaders(t *testing.T) {
	unavailable := plan{HeaderAtOnce: true, Delay: 10 * ms, Code: codes.Unavailable}
	withTrailer, withoutHeaders := unavailable, unavailable
	withTrailer.Trailer, withoutHeaders.HeaderAtOnce = metadata.Pairs("from", "server"), false
	for _, tc := range []struct {
		name   string
		hedge  plan
		closes bool // the caller closes the connection of hedges
		code   codes.Code
	}{
		{name: "breaks", hedge: plan{HeaderAtOnce: true, Delay: 10 * ms, Ending: testserver.CloseConn}},
		{name: "is closed", hedge: plan{HeaderAtOnce: true, Ending: testserver.Hang}, closes: true},
		{name: "a server's status, which cannot be told from that", hedge: unavailable},
		{name: "a server's status with a trailer", hedge: withTrailer, code: codes.Unavailable},
		{name: "a server's status without headers", hedge: withoutHeaders, code: codes.Unavailable},
	} {
		for config, opt := range map[string]hedge.Option{
			"hedgingPolicy": hedge.WithServiceConfig(`{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2,
				"hedgingDelay": "0.01s"}}]}`),
			"WithNonFatalCodes": hedge.WithNonFatalCodes(codes.Aborted),
		} {
			eachDoor(t, tc.name+", "+config, func(t *testing.T, d door) {
				s := hedgetest.New(t, hedge.WithReadOnlyMethods("/*/*"), hedge.WithBudgetPercent(400),
					hedge.WithMaxHedges(1), hedge.WithWarmup(1<<30, 10*ms), opt)
				client, _, far := elsewhere(t, s, plan{Delay: 100 * ms}, tc.hedge)
				if tc.closes {
					time.AfterFunc(20*ms, func() { _ = far.Close() })
				}
				_, err := callOver(t.Context(), d, client, &testpb.Request{Messages: 1})
				if status.Code(err) != tc.code {
					t.Errorf("%v, want %v", err, tc.code)
				}
			}, doors[:2]...)
		}
	}
}

// elsewhere starts two clusters and returns a client of the first one whose hedges go to the second,
// over the connection far. Each attempt there has the next of the plans.
func elsewhere(t *testing.T, s *hedge.Scheduler, here plan, there ...plan) (
	client testpb.TestServiceClient, second *testserver.Cluster, far *grpc.ClientConn,
) {
	first := testserver.StartT(t, testserver.Config{Name: "here", InMemory: true, Script: testserver.ByNumber(here)})
	second = testserver.StartT(t, testserver.Config{Name: "there", InMemory: true,
		Script: func(a testserver.Attempt) plan { return there[a.Number-1] }})
	far = second.ClientT(t)
	near := first.ClientT(t, interceptor.DialOptions(s, interceptor.HedgeTo(far))...)
	testserver.ConnectT(t, far)
	testserver.ConnectT(t, near)
	return testpb.NewTestServiceClient(near), second, far
}

// TestRule02_APolicyWaitsForAPushback: with a hedgingPolicy whose hedges go elsewhere, a pushback of the
// other destination delays the next hedge there, as a pushback of the only one does. It does not end
// the call, unless it is for good.
func TestRule02_APolicyWaitsForAPushback(t *testing.T) {
	pushback := func(ms string) plan {
		return plan{Code: codes.Unavailable, Trailer: metadata.Pairs("grpc-retry-pushback-ms", ms)}
	}
	for _, tc := range []struct {
		wait string
		code codes.Code
		sent []time.Duration // to the other destination
	}{
		{wait: "100", sent: times(10, 110)},
		{wait: "-1", code: codes.Unavailable, sent: times(10)},
	} {
		eachDoor(t, "after "+tc.wait, func(t *testing.T, d door) {
			s := hedgetest.New(t, hedge.WithBudgetPercent(400), hedge.WithServiceConfig(`{"methodConfig": [{"name": [{}],
					"hedgingPolicy": {"maxAttempts": 3, "hedgingDelay": "0.01s", "nonFatalStatusCodes": ["UNAVAILABLE"]}}]}`))
			client, there, _ := elsewhere(t, s, plan{Delay: 15 * ms, Code: codes.Unavailable}, pushback(tc.wait), plan{})
			began := time.Now()
			_, err := callOver(t.Context(), d, client, &testpb.Request{Messages: 1})
			synctest.Wait()
			var sent []time.Duration
			for _, r := range there.Records() {
				sent = append(sent, r.Arrival.Sub(began))
			}
			if status.Code(err) != tc.code || !slices.Equal(sent, tc.sent) {
				t.Errorf("%v, hedges after %v, want %v, %v", err, sent, tc.code, tc.sent)
			}
		}, doors[:2]...)
	}
}

// TestRule06_OnFinishAfterTheCall has an interceptor inside return before gRPC's call ends, beside
// plain gRPC.
func TestRule06_OnFinishAfterTheCall(t *testing.T) {
	for _, tc := range []struct {
		name  string
		delay time.Duration
	}{{"plain", 0}, {"primary", time.Hour}, {"beside a hedge, whose status is not a server's", ms}} {
		hedgetest.Run(t, tc.name, func(t *testing.T) {
			cluster := serve(t, func(a testserver.Attempt) plan {
				return plan{Delay: time.Duration(20-10*a.Number) * ms, Header: metadata.Pairs("attempt", fmt.Sprint(a.Number))}
			})
			s := hedgetest.FixedOrPlain(t, tc.delay, hedge.WithMaxHedges(1))
			conn := dial(t, cluster, s, grpc.WithChainUnaryInterceptor(
				func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker,
					opts ...grpc.CallOption) error {
					go func() {
						_ = invoker(context.WithoutCancel(ctx), method, req, &testpb.Reply{}, cc, opts...)
					}()
					time.Sleep(time.Duration(7-3*simulation.AttemptOf(ctx)) * ms)
					return status.Error(codes.NotFound, "gave up")
				}))
			began, header := time.Now(), metadata.MD{}
			var finished []string
			opts := []grpc.CallOption{grpc.Header(&header), grpc.OnFinish(func(err error) {
				finished = append(finished, fmt.Sprint(time.Since(began), err, header.Get("attempt")))
			})}
			err := conn.Invoke(t.Context(), testpb.TestService_UnaryNoSideEffects_FullMethodName, &testpb.Request{Id: 1},
				new(testpb.Reply), opts...)
			returned := time.Since(began)
			if tc.delay > 0 { // plain gRPC hands the slice to the interceptor, which still uses it
				clear(opts)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if want := "[20ms <nil> [0]]"; status.Code(err) != codes.NotFound || returned >= 10*ms ||
				fmt.Sprint(finished) != want {
				t.Errorf("%v after %v, OnFinish %v, want %s", err, returned, finished, want)
			}
		})
	}
}

func TestNotReadyIsNotHedged(t *testing.T) {
	eachDoor(t, "stopped", func(t *testing.T, d door) {
		cluster := serve(t, nil)
		cluster.Stop(0)
		s := hedgetest.Fixed(t, ms)
		ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
		defer cancel()
		_, err := callOver(ctx, d, testpb.NewTestServiceClient(cluster.ClientT(t, hedgetest.Interceptors(s)...)),
			&testpb.Request{}, grpc.WaitForReady(true))
		if got := s.Stats(); status.Code(err) != codes.DeadlineExceeded || got.Hedges != 0 ||
			d == unary && got.NotReady != 1 {
			t.Errorf("%v, %+v; want no hedge, as the connection is not ready", err, got)
		}
	})
}

// TestTrailer_OfAnAbandonedCall is for the race detector: an interceptor inside returns while gRPC
// is still ending the call, and may write its trailer.
func TestTrailer_OfAnAbandonedCall(t *testing.T) {
	for name, opts := range map[string]with{
		"unhedged": {hedge.WithMethods("/none/*")}, "may be hedged": {hedge.WithAllMethods()},
	} {
		hedgetest.Run(t, name, func(t *testing.T) {
			cluster := serve(t, testserver.ByNumber(plan{Delay: ms, Code: codes.Internal, Trailer: metadata.Pairs("a", "b")}))
			s := hedgetest.New(t, append(opts, hedgetest.Throttle(10, 0.1), hedge.WithWarmup(1<<30, time.Second))...)
			left := make(chan error, 1)
			conn := dial(t, cluster, s, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, _ any,
				cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				go func() { left <- invoker(ctx, method, req, new(testpb.Reply), cc, opts...) }()
				time.Sleep(ms)
				return status.Error(codes.Unavailable, "early")
			}))
			for range 20 {
				_, err := testpb.NewTestServiceClient(conn).Unary(t.Context(), &testpb.Request{})
				if status.Code(err) != codes.Unavailable {
					t.Error(err)
				}
				<-left
			}
		})
	}
}

// TestRule01_AFailureWithAMessage: gRPC decodes a message into the primary's reply, or half of one,
// and the primary fails afterwards. If the primary is the outcome, the reply is as plain gRPC
// leaves it. If a hedge is, the reply is the hedge's, or as it was.
func TestRule01_AFailureWithAMessage(t *testing.T) {
	half := func(after time.Duration) step { return step{after: after, code: codes.Unavailable, half: true} }
	opts := with{hedge.WithMaxHedges(1), hedge.WithReadOnlyMethods("/test.Service/Method")}
	scenes := []scene{
		{name: "no hedge was due", steps: []step{half(5 * ms)}, sent: times(0), at: 5 * ms, code: codes.Unavailable},
		{name: "both fail", steps: []step{half(15 * ms), fails(30*ms, codes.Internal)}, sent: times(0, 10),
			at: 40 * ms, code: codes.Unavailable},
		{name: "the hedge answers with an error", steps: []step{half(never), fails(5*ms, codes.NotFound)},
			sent: times(0, 10), at: 15 * ms, code: codes.NotFound, winner: 1},
		{name: "a hedge answers", steps: []step{half(never), answers(5 * ms)}, sent: times(0, 10), at: 15 * ms, winner: 1},
	}
	for i := range scenes {
		scenes[i].opts, scenes[i].doors = opts, doors[:2] // headers carry no message
	}
	playScenes(t, scenes)
}

func TestRule17_AFastCallStaysOnItsGoroutine(t *testing.T) {
	unary := interceptor.Unary(hedgetest.Fixed(t, time.Hour))
	req, reply := wrapperspb.Int64(1), wrapperspb.Int64(2)
	opts := []grpc.CallOption{grpc.WaitForReady(true)}
	invoke := func(_ context.Context, _ string, gotReq, gotReply any, _ *grpc.ClientConn, got ...grpc.CallOption) error {
		stack := make([]byte, 64<<10)
		if stack = stack[:runtime.Stack(stack, false)]; !bytes.Contains(stack, []byte("testing.tRunner(")) {
			t.Errorf("not on the caller's goroutine: %s", stack)
		}
		if gotReq != any(req) || gotReply != any(reply) || &got[0] != &opts[0] {
			t.Error("the request, the reply or the call options were copied")
		}
		return nil
	}
	if err := unary(t.Context(), "/a/B", req, reply, nil, invoke, opts...); err != nil {
		t.Error(err)
	}
}

// TestRule17_Allocations counts the allocations of a call that needs no hedge. A throttle or a
// policy needs the trailer.
func TestRule17_Allocations(t *testing.T) {
	for name, tc := range map[string]struct {
		opts []hedge.Option
		most float64
	}{
		"alone":           {nil, 3},
		"with a trace":    {with{hedge.WithTrace((&told{}).trace()), hedge.WithLogger(slog.Default())}, 3},
		"with a throttle": {with{hedgetest.Throttle(10, 0.1)}, 5},
		"with a policy": {with{hedge.WithServiceConfig(hedging(`{"maxAttempts": 2, "hedgingDelay": "3600s"}`))},
			6},
	} {
		t.Run(name, func(t *testing.T) {
			unary := interceptor.Unary(hedgetest.Fixed(t, time.Hour, tc.opts...))
			req, reply := wrapperspb.Int64(1), wrapperspb.Int64(2)
			ctx := t.Context()
			n := testing.AllocsPerRun(1000, func() {
				if err := unary(ctx, "/test.Service/Method", req, reply, nil, listen); err != nil {
					t.Error(err)
				}
			})
			if t.Logf("%v allocations", n); n > tc.most {
				t.Errorf("%v allocations over a bare invoker, want at most %v", n, tc.most)
			}
		})
	}
}

// listen does what any invoker does with its context: it asks for the channel of its end.
func listen(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
	_ = ctx.Done()
	return nil
}

// BenchmarkUnary is the cost of a call that needs no hedge, over an invoker that does nothing:
// inside a cancellable context and a timer, which no hedging can do without; hedged, with a delay
// that was learned, and with rules for others; and watched.
func BenchmarkUnary(b *testing.B) {
	conn := testserver.StartT(b, testserver.Config{}).ClientT(b)
	testserver.ConnectT(b, conn) // a call over a connection that is not ready teaches nothing
	req, reply := wrapperspb.Int64(1), wrapperspb.Int64(2)
	// Calls this short would be hedged after the least delay, within the benchmark's own noise.
	hedged := with{hedge.WithMinDelay(time.Second)}
	rules := hedged
	for n := range 100 {
		rules = append(rules, hedge.WithMethodOptions(fmt.Sprintf("/other.Svc%d/*", n), hedge.WithMaxHedges(1)),
			hedge.WithTargetOptions(fmt.Sprintf("dns:///other-%d*", n), hedge.WithMaxHedges(1)))
	}
	schedulers := map[string]*hedge.Scheduler{
		"hedged": hedgetest.All(b, hedged...), "hedged, 200 rules": hedgetest.All(b, rules...),
		"watched": hedgetest.All(b, hedge.WithMaxHedges(0)),
	}
	for name, intercept := range map[string]grpc.UnaryClientInterceptor{
		"contextAndTimer": func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer time.AfterFunc(time.Second, func() { cancel() }).Stop()
			return invoker(ctx, method, req, reply, cc, opts...)
		},
		"hedged":            interceptor.Unary(schedulers["hedged"]),
		"hedged, 200 rules": interceptor.Unary(schedulers["hedged, 200 rules"]),
		"watched":           interceptor.Unary(schedulers["watched"]),
	} {
		b.Run(name, func(b *testing.B) {
			call := func() {
				if err := intercept(b.Context(), "/pkg.Svc/Get", req, reply, conn, listen); err != nil {
					b.Fatal(err)
				}
			}
			for range 1000 { // the warm-up
				call()
			}
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
			if s := schedulers[name]; s != nil && name != "watched" && (s.Stats().Warmup > 100 || s.Methods()[0].Delay == 0) {
				b.Errorf("%d calls of the warm-up: not the cost of a hedged call", s.Stats().Warmup)
			}
		})
	}
}
