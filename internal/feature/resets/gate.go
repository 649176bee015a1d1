package resets

import (
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/stats"
)

// Gate is the gate of hedges whose primary could not be reset if they won.
type Gate struct{ Resets *Resets }

// Admit holds a hedge back while no reset may be sent, and its primary cannot be left. A call that began before resets were limited
// waits for up to three times its delay, because its primary may hang. A call that cannot run detached, because its attempts
// share the request, waits as long as there is no reset.
func (g Gate) Admit(d *feature.Due) feature.Verdict {
	if d.OffWire || d.Report.Repeated || d.Report.Detached {
		return feature.Pass
	}
	if soon := d.Age() < 3*d.Delay; (soon || d.Detached) && g.Resets.Spent(d.Now) {
		return feature.Later(stats.ResetsSpent)
	}
	return feature.Pass
}

// Judge sets in e whether an attempt that failed with err may have lost its connection, and whether resets are to blame. Its call
// began at the given time, on conn, which may be nil.
func (r *Resets) Judge(e *race.Event, err error, seen race.Seen, began time.Time, conn feature.Conn) {
	kind := CutOf(err)
	if e.Cut = kind != None && (seen.Peer == nil || seen.Nothing()); !e.Cut {
		return
	}
	// An attempt that was not watched has the state of the connection for evidence. With several connections, it may be ready.
	ended := seen.Nothing() || seen.Peer == nil && conn != nil && conn.GetState() != connectivity.Ready
	if e.Repeat = ended && r.Cut(kind, began, time.Now()); kind == NoReason {
		e.Conn = seen.Connection()
	}
}
