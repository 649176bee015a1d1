package hedge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// TestUpdate_TracesAndLoggers gives a trace and a logger by Update: they hear of the calls that begin afterwards, and those of before
// hear of no more. A call that is in flight tells the trace that was in force when it began.
func TestUpdate_TracesAndLoggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, second struct{ made, sent, decided int }
		var l logged
		common := []hedge.Option{hedge.WithAllMethods(), hedge.WithTrigger(hedge.Fixed(10 * ms)), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(100)}
		s := hedgetest.New(t, append(common, hedge.WithTrace(&hedge.Trace{
			Made:        func(*hedge.Scheduler) { first.made++ },
			HedgeSent:   func(stats.HedgeSent) { first.sent++ },
			CallDecided: func(stats.CallDecided) { first.decided++ },
		}))...)
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(5 * ms)
			if err := s.Update(append(common, l.option(), hedgetest.Throttle(2, 0.001), hedge.WithTrace(&hedge.Trace{
				Made:        func(*hedge.Scheduler) { second.made++ },
				HedgeSent:   func(stats.HedgeSent) { second.sent++ },
				CallDecided: func(stats.CallDecided) { second.decided++ },
			}))...); err != nil {
				t.Error(err)
			}
		}()
		hedgesOf(t, s, t.Context(), "t", "/s/M")
		<-done
		if first.sent != 1 || first.decided != 1 || second.sent+second.decided != 0 {
			t.Errorf("the call in flight: the first trace heard of %+v, the second of %+v", first, second)
		}
		for range 3 {
			hedgesOf(t, s, t.Context(), "t", "/s/M")
		}
		if first.sent != 1 || first.decided != 1 || second.sent == 0 || second.sent != int(s.Stats().Hedges)-1 || second.decided != second.sent {
			t.Errorf("after three further calls: the first trace heard of %+v, the second of %+v; %d hedges", first, second, s.Stats().Hedges)
		}
		if first.made != 1 || second.made != 0 {
			t.Errorf("Made was called %d times for the first trace and %d times for the second", first.made, second.made)
		}
		for range 2 { // the throttle closes
			_, _ = hedge.Do(t.Context(), s, "t", "/s/M", func(context.Context) (int, error) { return 0, errors.New("down") })
		}
		if got := hedgesOf(t, s, t.Context(), "t", "/s/M"); got != 0 {
			t.Errorf("a throttled call got %d hedges", got)
		}
		if lines := l.lines(); len(lines) == 0 || !strings.Contains(strings.Join(lines, "\n"), "hedging throttled") {
			t.Errorf("the logger of Update has %q", lines)
		}
	})
}
