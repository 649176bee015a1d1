package call_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestRule13_HedgesThatFailTeachNothing has failed hedges that win because every error is final.
func TestRule13_HedgesThatFailTeachNothing(t *testing.T) {
	s := hedgetest.All(t, hedge.WithNonFatalCodes())
	c := call.Begin((*registry.Registry)(s), t.Context(), target, method, nil)
	hedgetest.HedgeWins(&c, ms, status.Error(codes.Unavailable, "dead"))
	if n := hedgesKnown(&c); n != 0 {
		t.Errorf("%d hedges known, and one has failed", n)
	}
	hedgetest.HedgeWins(&c, ms, nil)
	hedgetest.HedgeWins(&c, ms, status.Error(codes.NotFound, "an answer"))
	cut := race.Report{Hedges: 1, DecidedAt: ms, DeliveredAt: ms}
	cut.Attempts[0] = race.AttemptReport{HasEnded: true, EndedAt: ms}
	cut.Attempts[1] = race.AttemptReport{CutShort: true}
	c.Book(&cut)
	if n := hedgesKnown(&c); n != 3 {
		t.Errorf("%d hedges known, want 3", n)
	}
}
