package interceptor_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

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
		{name: "named codes", opts: []hedge.Option{hedge.WithFailover(codes.NotFound, codes.ResourceExhausted)},
			steps: []step{quota, fails(2*ms, codes.NotFound), answers(ms)}, sent: times(0, 2, 4), at: 5 * ms, winner: 2},
		{name: "named codes replace the default", opts: []hedge.Option{hedge.WithFailover(codes.NotFound)},
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
