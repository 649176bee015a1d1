package call_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestPayment_OfARetriedHedge has savings pay for a hedge that is dropped, and tokens for its retry. The
// refund of the retry is a token again.
func TestPayment_OfARetriedHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithTrigger(hedge.Fixed(0)), hedge.WithMaxHedges(1), hedge.WithBudgetPercent(100))
		spender, c := begin(t.Context(), s, target, method), begin(t.Context(), s, target, method)
		for range 20 {
			begin(t.Context(), s, target, method)
		}
		time.Sleep(10 * time.Second) // the burst is one token then, and the rest is saved
		admit := func(c *call.Call, dropped int, tokens, saved float64) {
			t.Helper()
			e := c.Admit(1, 1, &race.Report{Dropped: dropped})
			if b := s.Methods()[0].Budget; e.Kind != race.Admitted || b.Tokens != tokens || b.Saved != saved {
				t.Errorf("%+v with %v tokens and %v saved, want a hedge, %v and %v", e, b.Tokens, b.Saved, tokens, saved)
			}
		}
		admit(spender, 0, 0, 4)
		for range 2 { // savings pay once hedges have won
			spender.Ended(&race.Report{Hedges: 1, Winner: 1})
		}
		admit(c, 0, 0, 3)
		begin(t.Context(), s, target, method) // earns a token
		admit(c, 1, 0, 4)
		c.Ended(&race.Report{Dropped: 2})
		if b := s.Methods()[0].Budget; b.Tokens != 1 || b.Saved != 4 {
			t.Errorf("%v tokens and %v saved, want 1 and 4", b.Tokens, b.Saved)
		}
	})
}
