package interceptor_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	testpb "github.com/grpchedge/hedge/proto"
)

// Messages of gRPC for a call on a connection that was cut.
const (
	silentCut = `connection error: desc = "error reading from server: EOF"`
	calmCut   = "closing transport due to: " + silentCut +
		`, received prior goaway: code: ENHANCE_YOUR_CALM, debug data: "too much"`
)

// In TestRule03_ACutConnectionFailsOver an attempt fails because its connection was cut. The next one
// is due at once if the server named too many resets as the reason, or none, hedges were sent in the
// last minute, and a hedge may be sent.
func TestRule03_ACutConnectionFailsOver(t *testing.T) {
	cut := func(text string) step { return step{after: ms, code: codes.Unavailable, text: text} }
	calm := []step{cut(calmCut), answers(ms)}
	ofGet := func(option hedge.Option) []hedge.Option {
		return with{hedge.WithMethodOptions("/a/Get", option)}
	}
	const quiet = "no hedges were sent"
	over := []scene{
		{name: "the server says so", steps: calm, winner: 1},
		{name: "the server gives no reason", steps: []step{cut(silentCut), answers(ms)}, winner: 1},
		{name: "the second answer is rejected", steps: calm, doors: doors[:2], // headers are not judged
			opts: with{goodBut(1), hedge.WithMaxHedges(1)}, winner: 1, rejected: true},
		{name: "another method", steps: calm, method: "/a/GetOther", winner: 1},
		{name: "with a limit of resets", steps: calm, opts: with{hedge.WithHedgeLimit(40, time.Minute)}, winner: 1},
		{name: "the budget is spent", steps: calm, opts: with{hedge.WithBudgetPercent(1)}, winner: 1},
	}
	for i := range over {
		over[i].sent, over[i].at = times(0, 1), 2*ms
	}
	over = append(over,
		scene{name: "twice, with one hedge at most", steps: []step{cut(calmCut), cut(calmCut), answers(ms)},
			opts: ofGet(hedge.WithMaxHedges(1)), sent: times(0, 1, 2), at: 3 * ms, winner: 2},
		scene{name: "each of five attempts", steps: slices.Repeat([]step{cut(calmCut)}, 5), sent: times(0, 1, 2, 3, 4),
			at: 5 * ms, code: codes.Unavailable},
		scene{name: "with its hedge, which the limit of resets waits for", steps: []step{{after: 12 * ms,
			code: codes.Unavailable, text: calmCut}, {after: 3 * ms, code: codes.Unavailable, text: calmCut}, answers(ms)},
			sent: times(0, 10, 13), at: 14 * ms, winner: 2})
	once := []scene{
		{name: quiet, steps: calm},
		{name: "too many pings", steps: []step{cut(strings.Replace(calmCut, "too much", "too_many_pings", 1))}},
		{name: "another error", steps: []step{cut("no healthy upstream")}},
		{name: "another code", steps: []step{{after: ms, code: codes.Internal, text: calmCut}}},
		{name: "a method that must not run twice", steps: calm, method: "/a/Put"},
		{name: "a request that cannot be copied", steps: calm, request: &struct{ text string }{"of a codec's own"}},
		{name: "not to be hedged", steps: calm, call: []grpc.CallOption{hedge.Off()}},
		{name: "no budget", steps: calm, opts: ofGet(hedge.WithBudgetPercent(0))},
		{name: "no hedges", steps: calm, opts: ofGet(hedge.WithMaxHedges(0))},
		{name: "a dry run", steps: calm, opts: ofGet(hedge.WithDryRun(true))},
		{name: "switched off", steps: calm, opts: ofGet(hedge.WithOff(true))},
	}
	for i := range once {
		once[i].sent, once[i].at, once[i].code = times(0), ms, once[i].steps[0].code
	}
	for _, sc := range append(over, once...) {
		eachDoor(t, sc.name, func(t *testing.T, d door) {
			s := hedgetest.New(t, append(with{hedge.WithMethods("/a/Get*"), hedge.WithTrigger(hedge.Fixed(10 * ms)),
				hedge.WithBudgetPercent(100)}, sc.opts...)...)
			for i := 0; i < 20 && sc.name != quiet; i++ {
				slow := &stub{steps: []step{answers(20 * ms), answers(5 * ms), silent()}, method: "/a/GetSlow"}
				if err := slow.callBy(d, t.Context(), s, wrapperspb.Int64(-1)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if sc.doors != nil && !slices.Contains(sc.doors, d) {
				return
			}
			sc.method = cmp.Or(sc.method, "/a/Get")
			sc.play(t, d, s)
			failovers := int64(0)
			for _, at := range sc.sent[1:] {
				if at%(10*ms) > 0 {
					failovers++
				}
			}
			if got := s.Stats(); got.Failovers != failovers {
				t.Errorf("%d failovers, want %d", got.Failovers, failovers)
			}
			for _, row := range s.Methods() { // other texts cost no hedge
				if first := sc.steps[0]; row.Resets.Learned > 0 && (first.text != calmCut || first.code != codes.Unavailable) {
					t.Errorf("%s: %+v, want no limit to be learned", row.Method, row.Resets)
				}
			}
		})
	}
}

// TestRule07_RescuesSpendNoResets has calls that are slow and calls whose connection is cut, in turn,
// with a limit of 10 hedges an hour. The only attempt in flight makes no loser: it takes nothing from
// the limit, and gives nothing back. If it is slow, it has a hedge like any other attempt.
func TestRule07_RescuesSpendNoResets(t *testing.T) {
	slow := []step{answers(20 * ms), answers(ms)}
	cut := step{after: ms, code: codes.Unavailable, text: calmCut}
	for name, tc := range map[string]struct {
		steps   []step
		rescues int64 // of each call
	}{
		"turned away": {[]step{cut, fails(ms, codes.ResourceExhausted, "0"), answers(ms)}, 2},
		"slow":        {[]step{cut, silent(), answers(ms)}, 1},
	} {
		eachDoor(t, name, func(t *testing.T, d door) {
			s := hedgetest.Fixed(t, 10*ms, hedge.WithHedgeLimit(10, time.Hour), hedge.WithGuard(false),
				hedge.WithBudgetPercent(400), hedge.WithMaxHedges(2))
			for range 20 {
				for _, steps := range [][]step{slow, tc.steps} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_ = (&stub{steps: steps}).callBy(d, ctx, s, wrapperspb.Int64(0))
					cancel()
					synctest.Wait()
				}
			}
			got := s.Stats()
			if hedges := got.Hedges - 20*tc.rescues; hedges > 10 || got.Failovers < 20 || got.ResetsSpent < 10 {
				t.Errorf("%d hedges besides %d failovers, %d held back, want at most 10, 20 and at least 10", hedges,
					got.Failovers, got.ResetsSpent)
			}
		})
	}
}

// TestRule07_ServersThatCountResets has servers that cut connections for resets. No call fails that
// may be hedged, and none at all where the limit is set.
func TestRule07_ServersThatCountResets(t *testing.T) {
	longtest.Simulation(t)
	const calls, callers, graceful = 10_000, 32, 500
	for _, tc := range longtest.First(2, []struct {
		name  string
		limit testserver.Limit
		set   hedge.Option
	}{
		{"Armeria, small", testserver.Limit{Resets: 40, Per: time.Minute, Close: testserver.CloseCalm}, nil},
		{"Apache, set", testserver.LimitLikeApache, hedge.WithHedgeLimit(20, time.Second)},
		{"Node.js, half", testserver.Limit{Resets: graceful}, nil},
		{"silent, set", testserver.Limit{Resets: 400, Per: time.Minute, Close: testserver.CloseSilently},
			hedge.WithHedgeLimit(400, time.Minute)},
	}) {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			cluster := testserver.StartT(t, testserver.Config{InMemory: true, Seed: 1, DrawByID: true, CountsOnly: true,
				Latency: testserver.DistributionT(t, "straggler"), Limit: &tc.limit})
			s := hedgetest.All(t, tc.set)
			client := testpb.NewTestServiceClient(dial(t, cluster, s, grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: 100 * ms, MaxDelay: 100 * ms}})))
			hedgetest.P99(t, calls, callers, func(id int) error {
				reply, err := callOver(t.Context(), d, client, &testpb.Request{Id: uint64(id + 1), Messages: 3})
				// Not hedged is a stream that has begun, and a call of the warm-up.
				if err != nil && tc.set == nil && (reply != nil || id < 100) {
					err = nil
				}
				time.Sleep(20 * ms)
				return err
			})
			time.Sleep(time.Minute)
			most := int64(2)
			conns := cluster.ConnCounts()
			if tc.limit.Resets == graceful {
				most += conns.Resets / graceful
			}
			if ended := conns.Cuts + conns.GoAways; conns.Connections > most || (ended > 0) != (tc.set == nil) ||
				s.Stats().HedgeWins < 10 {
				t.Errorf("%+v, want at most %d connections, and the server to end some: %t; %+v", conns, most,
					tc.set == nil, s.Stats())
			}
		}, doors[:2]...)
	}
}

// TestGuard_GetsEachFailureOnce: RESOURCE_EXHAUSTED of a hedge alone halves the share. After
// that RESOURCE_EXHAUSTED of any call halves it, once.
func TestGuard_GetsEachFailureOnce(t *testing.T) {
	for _, tc := range []struct {
		name   string
		steps  []step
		option hedge.Option
		calls  []grpc.CallOption
		alone  float64 // the share after that
		after  float64 // the share if a hedge has failed alone before; 0: 0.5
	}{
		{name: "none", steps: []step{answers(50 * ms), answers(50 * ms)}},
		{name: "an unhedged call", steps: []step{fails(ms, codes.ResourceExhausted)}, calls: []grpc.CallOption{hedge.Off()},
			after: 0.25},
		{name: "a primary before its hedge", steps: []step{fails(ms, codes.ResourceExhausted)}, after: 0.25},
		{name: "the same, with another throttle", steps: []step{fails(ms, codes.ResourceExhausted)},
			option: hedgetest.Throttle(10, 1), after: 0.25},
		{name: "a hedge", steps: []step{answers(50 * ms), fails(ms, codes.ResourceExhausted)}, alone: 0.5},
		{name: "a hedge that was turned away", steps: []step{answers(50 * ms), fails(ms, codes.ResourceExhausted, "-1")}},
		{name: "both", steps: []step{fails(20*ms, codes.ResourceExhausted), fails(20*ms, codes.ResourceExhausted)},
			after: 0.25},
		{name: "a hedge whose failure is the outcome, by a hedgingPolicy", steps: []step{silent(),
			fails(ms, codes.ResourceExhausted)}, option: hedge.WithServiceConfig(hedging(two)), alone: 0.5, after: 0.25},
		{name: "a loser that is cancelled", steps: []step{answers(50 * ms), answers(ms)}},
		{name: "a call that is not found", steps: []step{fails(ms, codes.NotFound)}},
	} {
		eachDoor(t, tc.name, func(t *testing.T, d door) {
			for _, before := range []bool{false, true} {
				s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1), tc.option)
				want := cmp.Or(tc.alone, 1)
				if before {
					want = cmp.Or(tc.after, 0.5)
					_ = (&stub{steps: []step{answers(15 * ms), fails(ms, codes.ResourceExhausted)}}).callBy(d, t.Context(), s,
						wrapperspb.Int64(0))
				}
				_ = (&stub{steps: tc.steps}).callBy(d, t.Context(), s, wrapperspb.Int64(0), tc.calls...)
				time.Sleep(5 * time.Second) // the pause
				if got := s.Methods()[0].Guard; got.Share < want || got.Share > want+0.01 {
					t.Errorf("the share is %v, want %v; %s", got.Share, want, got.Reason)
				}
			}
		})
	}
}

// TestGuard_AMessageBeyondALimit has hedges that fail with RESOURCE_EXHAUSTED because their reply is
// larger than the client allows. No rate limit is used up.
func TestGuard_AMessageBeyondALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.Fixed(t, 10*ms, hedge.WithMaxHedges(1))
		cluster := serve(t, testserver.ByNumber(plan{Delay: 50 * ms}, plan{PayloadBytes: 2000}))
		client := testpb.NewTestServiceClient(cluster.ClientT(t, append(hedgetest.Interceptors(s),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1000)))...))
		for id := range uint64(20) {
			if _, err := client.Unary(t.Context(), &testpb.Request{Id: id}); err != nil {
				t.Fatal(err)
			}
			_, err := client.Unary(t.Context(), &testpb.Request{Id: id, ReplyBytes: 2000}, hedge.Off())
			if status.Code(err) != codes.ResourceExhausted {
				t.Fatalf("%v, want a message beyond the limit", err)
			}
		}
		if m := s.Methods()[0]; m.Hedges < 5 || m.Guard.Share < 1 {
			t.Errorf("%d hedges, and the guard leaves %v of them: %s", m.Hedges, m.Guard.Share, m.Guard.Reason)
		}
	})
}
