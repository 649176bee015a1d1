package guard

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/codeset"
	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/stats"
)

// Gate is the gate and the observer of one method.
type Gate struct {
	Method  *Method
	Traffic func() Traffic // so far
	// Policy says that the method has a hedgingPolicy. The hedge of a call whose attempts have failed may then be its only hope,
	// and is not for the guard.
	Policy bool
}

// Admit lets the share of hedges pass that the guard admits. However often that is asked, a hedge has one ticket.
func (g *Gate) Admit(d *feature.Due) feature.Verdict {
	if g.Policy && slices.ContainsFunc(d.Report.Attempts[:], func(a race.AttemptReport) bool { return a.Failed() }) {
		return feature.Pass
	}
	share := g.Method.Share(d.Now, g.Traffic())
	if share < 1 && d.Ticket.Of != d.N {
		d.Ticket = feature.Ticket{Of: d.N, Value: g.Method.Ticket()}
	}
	if share == 1 || d.Ticket.Value < share {
		return feature.Pass
	}
	return feature.Later(stats.Guarded)
}

// Admitted notes that a hedge is sent.
func (g *Gate) Admitted(d *feature.Due) { g.Method.Sent(d.Now) }

// Quiet says that the guard looks at failures and races only.
func (g *Gate) Quiet() {}

// Ended notes which attempts failed with RESOURCE_EXHAUSTED, and whether the call failed.
func (g *Gate) Ended(_ feature.Call, e feature.End) {
	switch {
	case e.Race != nil:
		g.raced(e.Race)
	case e.Err == nil, e.Hedge != nil: // the race of a hedge that has won by its headers was noted
		return
	case exhausted(e.Err):
		g.Method.Exhausted(time.Now(), g.Traffic(), false)
	}
	if !fine.HasStatus(e.Err) {
		g.Method.Failed(time.Now(), g.Traffic())
	}
}

// raced notes the failures in a race. A server that turns hedges away, and says so, needs no guard.
func (g *Gate) raced(r *race.Report) {
	hedge := false
	for n := 1; n <= r.Hedges; n++ {
		hedge = hedge || r.Attempts[n].Pushback == race.NoPushback && ranOut(&r.Attempts[n])
	}
	if primary := ranOut(&r.Attempts[0]); primary || hedge {
		g.Method.Exhausted(time.Now(), g.Traffic(), !primary)
	}
}

func ranOut(a *race.AttemptReport) bool { return a.HasEnded && !a.CutShort && exhausted(a.Err) }

func exhausted(err error) bool { return err != nil && status.Code(err) == codes.ResourceExhausted }

// fine are the statuses that are no failures for the guard's trials. A deadline that passes is one. RESOURCE_EXHAUSTED has a
// judgement of its own.
var fine = codeset.Answers | codeset.Of(codes.Canceled, codes.ResourceExhausted)
