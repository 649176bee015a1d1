package hedge_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	hcall "github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

// TestBook_DroppedHedges counts only the hedges that were sent.
func TestBook_DroppedHedges(t *testing.T) {
	const other = "/pkg.Svc/Other"
	for sent, want := range []stats.Counts{{Calls: 1}, {Calls: 1, Hedged: 1, Hedges: 1, PrimaryWins: 1}} {
		s := hedgetest.All(t, hedge.WithBudgetPercent(400))
		c := hcall.Begin(registry.Of(s), t.Context(), target, method, nil, hedge.After(0))
		r := race.Report{Hedges: sent, Dropped: 1, DecidedAt: ms}
		r.Attempts[0] = race.AttemptReport{HasEnded: true, EndedAt: ms}
		if sent > 0 {
			r.Attempts[1] = race.AttemptReport{CutShort: true}
		}
		for n := 1; n <= sent+1; n++ {
			for range 20 { // earns what the hedge costs
				hcall.Begin(registry.Of(s), t.Context(), target, other, nil, hedge.After(0))
			}
			if admitted, _ := hedgetest.Admit(&c, n); !admitted {
				t.Fatal("the budget does not pay")
			}
		}
		c.Book(&r)
		want.Calls += int64(20 * (sent + 1))
		if got := s.Stats(); got != want {
			t.Errorf("%d sent: %+v, want %+v", sent, got, want)
		}
	}
}

// TestBook_DroppedHedgesArePaidBack drops hedges, before the call's next hedge is due or at its end.
func TestBook_DroppedHedgesArePaidBack(t *testing.T) {
	tokens := func(s *hedge.Scheduler) float64 { return s.Targets()[0].Tokens }
	s := hedgetest.All(t)
	c := hcall.Begin(registry.Of(s), t.Context(), target, method, nil, hedge.After(0))
	var r race.Report
	for dropped := range 3 {
		r.Dropped = dropped
		if c.Admit(1, 1, &r).Kind != race.Admitted {
			t.Fatalf("refused after %d hedges that were dropped", dropped)
		}
		if got := tokens(s); got >= 1 {
			t.Fatalf("%v tokens after a hedge was paid for", got)
		}
	}
	r.Dropped++
	r.Attempts[0] = race.AttemptReport{HasEnded: true, EndedAt: ms}
	c.Book(&r)
	if got := tokens(s); got != 1 {
		t.Errorf("%v tokens after the last one was dropped too, want 1", got)
	}
	if got, want := s.Stats(), (stats.Counts{Calls: 1}); got.Hedges != want.Hedges {
		t.Errorf("%d hedges, want none", got.Hedges)
	}
}

// TestBook_FailuresCountOnce has the throttle know of a failure when the next hedge is due, and once.
func TestBook_FailuresCountOnce(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "")
	failed := race.AttemptReport{HasEnded: true, EndedAt: ms, End: race.NonFatal, Err: unavailable, Pushback: race.PushbackAfter}
	for name, tc := range map[string]struct {
		report race.Report
		want   float64
		pushed int64
	}{
		"a failure":                        {race.Report{Err: unavailable}, 9, 1},
		"one that came as the caller left": {race.Report{Err: unavailable, CallerGone: race.CallerCancelled, GoneAt: ms}, 10, 0},
		"one before the caller left":       {race.Report{Err: unavailable, CallerGone: race.CallerCancelled, GoneAt: 2 * ms}, 9, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := hedgetest.All(t, hedgetest.Throttle(10, 0.1))
			c := hcall.Begin(registry.Of(s), t.Context(), target, method, nil, hedge.After(0))
			tc.report.Attempts[0] = failed
			c.Admit(1, 1, &tc.report)
			if got := s.Targets()[0].ThrottleTokens; got != tc.want {
				t.Errorf("%v tokens when a hedge is due, want %v", got, tc.want)
			}
			c.Book(&tc.report)
			if got := s.Targets()[0]; got.ThrottleTokens != tc.want || got.PushedBack != tc.pushed {
				t.Errorf("%v tokens at the end, %d pushed back; want %v, %d", got.ThrottleTokens, got.PushedBack, tc.want, tc.pushed)
			}
		})
	}
}
